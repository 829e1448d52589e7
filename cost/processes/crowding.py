"""A GPU whose memory others hold: what fails for that says nothing of the candidate.

Dozens of compilers may share one GPU, each with a context and the workspaces of its libraries.
Which of them finds no room is chance; with fewer beside it, the same one does.
"""

from __future__ import annotations

import re

FULL = "the GPU had no room for it beside others"
"""How the reasons of such failures begin."""

_MEMORY = re.compile(
    r"CUDA_ERROR_OUT_OF_MEMORY|cudaErrorMemoryAllocation"
    r"|\bcu(da)?[A-Z]\w*\b[^\n]*: out of memory"  # cudaMalloc, cudaStreamCreate, cuMemAlloc
    r"|CUDA( error)?: out of memory"
    r"|CU(DNN|BLAS|SOLVER)_STATUS_ALLOC_FAILED"
)
_LIBRARY = re.compile(r"CU(DNN|BLAS|SOLVER)_STATUS_(NOT_INITIALIZED|INTERNAL_ERROR)")
"""What libraries say where they could not make what they need, most often for want of memory."""

_MOST_TRIES = 3
"""Of a request that fails with what a library says; those that found no memory have more."""


def says_full(text: str) -> bool:
    """Whether an error of a compiler that uses a GPU is that others hold its memory, or may be so.

    Parameters
    ----------
    text : str
        Of the error. What the processor's memory lacks is told otherwise.

    Returns
    -------
    bool
        True for libraries' internal errors, too.

    Examples
    --------
    >>> says_full("cudaStreamCreate: out of memory"), says_full("cc1plus: out of memory")
    (True, False)
    >>> says_full("cudnnCreate: CUDNN_STATUS_INTERNAL_ERROR")
    True
    """
    return bool(_MEMORY.search(text) or _LIBRARY.search(text))


class Crowding:
    """How many workers of a pool may be at work at once, given what a GPU had room for.

    Parameters
    ----------
    parallel : int
        Workers that there are.

    Examples
    --------
    >>> crowding = Crowding(64)
    >>> crowding.is_asked_again(7, f"{FULL}: cudaStreamCreate: out of memory", running=39)
    True
    >>> crowding.most
    30
    >>> crowding.begin()
    >>> crowding.most
    60
    """

    def __init__(self, parallel: int) -> None:
        self.most = self._parallel = parallel
        self._tries: dict[int, int] = {}

    def begin(self) -> None:
        """Other requests come: try whether there is more room by now."""
        self.most = min(self._parallel, 2 * self.most)
        self._tries.clear()

    def is_asked_again(self, index: int, reason: str, running: int) -> bool:
        """Note that a request found no room, and say whether it is worth another try.

        Parameters
        ----------
        index : int
            Of the request.
        reason : str
            The failure's.
        running : int
            Other requests that are under way.

        Returns
        -------
        bool
            False in the end, where fewer at once did not help; nothing is held against it then.
        """
        self._tries[index] = self._tries.get(index, 0) + 1
        if _MEMORY.search(reason):
            # A quarter fewer than what seems to have room.
            self.most = max(1, min(self.most, running - running // 4))
            return self._tries[index] < 2 * _MOST_TRIES
        return self._tries[index] < _MOST_TRIES
