"""The independent oracle: Relax functions evaluated in numpy, operator by operator.

Measured candidates are checked against it before their time counts, so it shares no code with the
backends. Values are compared relative to the largest absolute value of an output
(:func:`largest_error`), since a float32 sum of many terms has no tighter bound element by element;
``DEFAULT_RTOL`` leaves room for another order of summation and for Winograd-like algorithms.
"""

from collage.cost.reference.compare import DEFAULT_RTOL, largest_error
from collage.cost.reference.evaluator import evaluate

__all__ = ["DEFAULT_RTOL", "evaluate", "largest_error"]
