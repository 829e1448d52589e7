"""What PyTorch calls with each graph that it has traced."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NoReturn

from collage.backends.contract.errors import ModelError
from collage.dynamo.options import Options


def compile_graph(
    gm: Any,
    example_inputs: Sequence[Any],
    *,
    mode: str | None = None,
    options: Mapping[str, Any] | None = None,
) -> Callable[..., Any]:
    """A backend of ``torch.compile``: searches over a graph and compiles what is fastest.

    Parameters
    ----------
    gm : torch.fx.GraphModule
        What PyTorch traced: a model, or a part of it between two graph breaks.
    example_inputs : sequence
        Stand-ins for what it is called with.
    mode : str, optional
        ``replay:LOG`` measures nothing and takes all from the log; ``search:LOG`` and ``search``
        are as options are by default. PyTorch takes a mode or options, not both.
    options : mapping, optional
        ``targets``, ``log``, ``time_budget_sec`` and others, see :doc:`/pytorch`.

    Returns
    -------
    callable
        As the graph is called.

    Raises
    ------
    UserError
        An unknown option or mode.
    ModelError
        For a graph whose gradients are wanted.

    Examples
    --------
    >>> import torch
    >>> options = {"targets": ["llvm"], "log": "net.jsonl"}
    >>> net = torch.compile(torch.nn.ReLU(), backend=compile_graph, options=options)
    >>> with torch.no_grad():
    ...     net(torch.tensor([[-1.0, 2.0]]))
    tensor([[0., 2.]])
    """
    from functorch.compile import make_boxed_func
    from torch._dynamo.backends.common import aot_autograd
    from torch._guards import TracingContext

    from collage.dynamo.graph import Graph

    chosen = Options.of(mode, options)

    def compiled(functional: Any, _: Sequence[Any]) -> Callable[..., Any]:
        metadata = TracingContext.get().fw_metadata
        written = set(metadata.mutated_inp_runtime_indices)
        weights = [place for place in metadata.static_input_indices if place not in written]
        graph = Graph(functional, weights, chosen)
        boxed: Callable[..., Any] = make_boxed_func(graph)
        return boxed

    backend: Callable[..., Callable[..., Any]] = aot_autograd(
        fw_compiler=partial(_refuse, "forward"),
        bw_compiler=partial(_refuse, "backward"),
        inference_compiler=compiled,
    )
    return backend(gm, example_inputs)


def _refuse(which: str, *_: Any) -> NoReturn:
    raise ModelError(
        "gradients are wanted of this graph, and only inference is compiled: call the model under "
        "torch.inference_mode() or torch.no_grad(), or let its parameters require none "
        "(model.requires_grad_(False))",
        value=which,
    )
