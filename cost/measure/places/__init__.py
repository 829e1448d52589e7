"""Several devices that time candidates at once.

``runner_pool`` hands out what is to be timed, ``holding`` keeps others from the devices meanwhile,
and ``comparing`` has them time a ``reference_set``, from which the ``calibration`` tells whose
times do not compare.
"""
