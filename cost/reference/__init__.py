"""The independent oracle: Relax functions evaluated in numpy, operator by operator.

Measured candidates are checked against it before their time counts, so it shares no code with the
backends. Values are compared relative to the largest absolute value of an output and by root mean
square (:func:`distance`), since a float32 sum of many terms has no tighter bound element by
element. How far off a result may be follows from what rounding does to it on the very inputs
(:class:`Noise`), which a second evaluation tells (:func:`sample_of`).
"""

from collage.cost.reference.arithmetic import Arithmetic
from collage.cost.reference.compare import (
    DEFAULT_RTOL,
    Distance,
    Noise,
    distance,
    largest_error,
)
from collage.cost.reference.evaluator import evaluate
from collage.cost.reference.metrics import Metric, OwnMetric
from collage.cost.reference.sample import Sample, sample_of

__all__ = [
    "DEFAULT_RTOL",
    "Arithmetic",
    "Distance",
    "Metric",
    "Noise",
    "OwnMetric",
    "Sample",
    "distance",
    "evaluate",
    "largest_error",
    "sample_of",
]
