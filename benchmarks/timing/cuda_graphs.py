"""Calls of PyTorch recorded as CUDA graphs, to be timed without what launching costs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

_WARM_UPS = 3


def recorded(call: Callable[[], Any]) -> Callable[[], Any]:
    """A call that replays what was recorded of another, and gives that one's result.

    Raises
    ------
    RuntimeError
        When it cannot be captured.
    """
    import torch

    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(_WARM_UPS):
            call()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = call()

    def replay() -> Any:
        graph.replay()
        return result

    return replay
