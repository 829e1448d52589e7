"""Candidates that decide an answer, timed together in turns: who is asked, what stays built, the
rounds of a runner on this machine. Used by :mod:`collage.cost.measure` and its models alone."""
