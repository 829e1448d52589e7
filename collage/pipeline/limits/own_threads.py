"""How many threads this process's own matrix products take while others compile and measure.

numpy's reference is evaluated beside the builders. Its BLAS takes all cores by default, and its
threads wait awake: on a machine of 32 cores a reference whose products take a second in all kept 18
cores busy for 15 s, which the compilers went without.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

from threadpoolctl import threadpool_limits

_SHARE = 4
_MOST = 8


def few_own_threads(cores: int) -> AbstractContextManager[object]:
    """While this is entered, matrix products of this process run on a part of the cores.

    The limit is the process's, for BLAS libraries have no other; it is taken back at the end.

    Parameters
    ----------
    cores : int
        Of the machine, as far as this process may use them. Where there are so few that a part
        would be one thread, products keep them all.

    Examples
    --------
    >>> import numpy as np
    >>> from threadpoolctl import threadpool_info
    >>> with few_own_threads(64):
    ...     {pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"}
    {8}
    """
    few = min(_MOST, cores // _SHARE)
    if few < 2:
        return nullcontext()
    limited: AbstractContextManager[object] = threadpool_limits(limits=few, user_api="blas")
    return limited
