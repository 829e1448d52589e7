"""What every schedule on every device needs so that the numbers are right.

``wide`` computes narrow floats in float32, ``wide_operators`` and ``in_float32`` do so where loops
cannot be widened from outside, and ``exact`` names the legalizations of operators that TVM's own
are not right for.
"""
