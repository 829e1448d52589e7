"""How many threads this process's own matrix products take while others compile and measure.

numpy's reference is evaluated beside the builders. Its BLAS takes all cores by default, and its
threads wait awake: on a machine of 32 cores a reference kept 18 of them busy for 14 s, which the
compilers went without. On two cores, beside a builder, two threads wait for each other.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from threadpoolctl import threadpool_info, threadpool_limits

_SHARE = 4
_FEW, _MOST = 2, 8


class _Limit:
    """The process's limit: from the first search that wants it to the last, whichever ends when."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._searches = 0
        self._limit: threadpool_limits | None = None

    def begin(self, few: int) -> None:
        with self._lock:
            if self._searches == 0:
                # Never more than the user has asked for.
                limits = {
                    pool["prefix"]: min(few, pool["num_threads"])
                    for pool in threadpool_info()
                    if pool["user_api"] == "blas"
                }
                self._limit = threadpool_limits(limits=limits)
            self._searches += 1

    def end(self) -> None:
        with self._lock:
            self._searches -= 1
            if self._searches == 0 and self._limit is not None:
                self._limit.restore_original_limits()
                self._limit = None


_LIMIT = _Limit()


@contextmanager
def few_own_threads(cores: int) -> Iterator[None]:
    """While this is entered, matrix products of this process run on a part of the cores.

    The limit is the process's, for BLAS libraries have no other: searches in several threads share
    it, and the last one to end takes it back.

    Parameters
    ----------
    cores : int
        Of the machine, as far as this process may use them: products get a quarter of them, of few
        up to two threads, and one core at the least is left to others.

    Examples
    --------
    >>> import numpy as np
    >>> with few_own_threads(64):
    ...     pools = [pool for pool in threadpool_info() if pool["user_api"] == "blas"]
    >>> max(pool["num_threads"] for pool in pools) <= 8
    True
    """
    _LIMIT.begin(max(1, min(_MOST, cores - 1, max(_FEW, cores // _SHARE))))
    try:
        yield
    finally:
        _LIMIT.end()
