"""What the nodes of an exported program tell of themselves, asked while they are translated."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import torch
from numpy.typing import NDArray
from torch import fx
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from tvm import relax

from collage.importers.torch.operators.arguments import dtype_of

_SUMS = frozenset(["sum.default", "sum.dim_IntList", "cumsum.default", "cumprod.default",
                   "prod.default", "prod.dim_int", "mean.dim", "mean.default"])  # fmt: skip
"""Their operands are converted to the result's type before anything is added."""

_JOINED = frozenset(["cat.default", "stack.default"])
"""Their operands may be of several types."""

_ABOUT_NUMBERS = frozenset(
    [
        *("_assert_scalar.default", "sym_constrain_range.default", "sym_size.int"),
        *("sym_constrain_range_for_size.default", "item.default", "_local_scalar_dense.default"),
        *("ge", "le", "gt", "lt", "eq", "ne", "add", "mul", "sym_sum"),
    ]
)
"""What numbers of rows are read and asserted with."""


def is_about_numbers(node: fx.Node) -> bool:
    """Whether a node gives no tensor, and reads, computes with or asserts numbers of rows."""
    tensor = isinstance(node.meta.get("val"), torch.Tensor)
    return getattr(node.target, "__name__", "") in _ABOUT_NUMBERS and not tensor


def give_types(graph: fx.Graph) -> None:
    """Let nodes that were added tell the types of their results, as others do.

    PyTorch would do that by tracing the program once more, but for the results that were added.

    Parameters
    ----------
    graph : torch.fx.Graph
        In which nodes without ``val`` are given one.
    """
    fakes = (value.fake_mode for node in graph.nodes for value in _fakes(node))
    mode = next(fakes, FakeTensorMode())

    def value(node: fx.Node) -> Any:
        return node.meta["val"]

    with mode:
        for node in graph.nodes:
            if node.op == "call_function" and "val" not in node.meta:
                args, kwargs = fx.node.map_arg((node.args, node.kwargs), value)
                node.meta["val"] = node.target(*args, **kwargs)


def _fakes(node: fx.Node) -> list[Any]:
    value = node.meta.get("val")
    return [value] if isinstance(value, FakeTensor) else []


def label(node: fx.Node) -> str:
    """A node's name, after that of the innermost module it stands in: ``backbone.0.conv2d``."""
    stack = list(node.meta.get("nn_module_stack", {}).values())
    path = str(stack[-1][0]) if stack else ""
    path = path.removeprefix("L['self']").strip(".")
    return f"{path}.{node.name}" if path else node.name


def type_name(dtype: torch.dtype) -> str:
    """An element type as TVM writes it, ``float32``."""
    return str(dtype).removeprefix("torch.")


def as_array(tensor: torch.Tensor) -> NDArray[Any]:
    """What a tensor holds, as numpy's."""
    plain = tensor.detach().cpu().contiguous()
    if plain.dtype == torch.bfloat16:
        return np.asarray(plain.float().numpy(), ml_dtypes.bfloat16)
    return np.asarray(plain.numpy())


def depends_on_data(node: fx.Node) -> bool:
    """Whether a result's shape is known only while the program runs."""
    wanted = node.meta.get("val")
    tensors = wanted if isinstance(wanted, list | tuple) else [wanted]
    return any(
        isinstance(one, torch.Tensor) and any(isinstance(n, torch.SymInt) for n in one.shape)
        for one in tensors
    )


def asks_for_an_axis(node: fx.Node) -> bool:
    """Whether an operator goes along an axis of a tensor of rank 0."""
    first = node.args[0] if node.args else None
    value = first.meta.get("val") if isinstance(first, fx.Node) else None
    if not isinstance(value, torch.Tensor) or value.ndim or value.is_complex():
        return False
    if node.target.__name__.startswith(("unsqueeze", "squeeze")):
        return False
    schema = getattr(node.target, "_schema", None)
    names = {argument.name for argument in schema.arguments} if schema else set()
    return bool(names & {"dim", "dims", "dimension"})


def computed_in(node: fx.Node, argument: fx.Node, value: Any) -> str:
    """The type that an operand is converted to first; empty for none.

    Of elementwise operators it is the result's, unless that is a truth value or the operand is one
    that is only asked whether it holds.

    Parameters
    ----------
    node : fx.Node
        The operator's.
    argument : fx.Node
        That makes the operand.
    value : object
        What the operand was translated to.

    Returns
    -------
    str
        As TVM names it.
    """
    wanted = node.meta.get("val")
    if not isinstance(wanted, torch.Tensor) or not isinstance(value, relax.Expr):
        return ""
    tags = getattr(node.target, "tags", ())
    name = node.target.__name__
    if wanted.dtype == torch.bool or not (torch.Tag.pointwise in tags or name in _SUMS | _JOINED):
        return ""
    asked = {"where.self": 0, "masked_fill.Scalar": 1, "masked_fill.Tensor": 1}.get(name)
    if name.startswith("_to_copy") or (asked is not None and argument is node.args[asked]):
        return ""
    dtype = type_name(wanted.dtype)
    return dtype if dtype_of(value) not in ("", dtype) else ""


def is_natural(node: fx.Node, natural: set[relax.Expr], env: dict[fx.Node, Any]) -> bool:
    """Whether an integer result holds no negative values, by how it was made.

    Parameters
    ----------
    node : fx.Node
        That makes it.
    natural : set of relax.Expr
        Values that are known to hold none.
    env : dict of fx.Node to object
        What nodes were translated to.

    Returns
    -------
    bool
        False where that is not known.
    """
    name = node.target.__name__
    if name.startswith("arange"):
        return all(not isinstance(n, int | float) or n >= 0 for n in node.args)
    if name == "remainder.Scalar":
        return bool(node.args[1] > 0)
    if name.startswith(("view", "unsqueeze", "expand", "reshape", "clone", "permute", "_to_copy")):
        return env.get(node.args[0]) in natural
    return False


def numbers_of_kinds(graph: fx.Graph) -> dict[fx.Node, int]:
    """A number for each node, the same for those that compute the same of the same."""
    kinds: dict[Any, int] = {}
    numbers: dict[fx.Node, int] = {}
    for node in graph.nodes:
        kind: Any = node
        if node.op == "call_function" and torch.Tag.nondeterministic_seeded not in getattr(
            node.target, "tags", ()
        ):
            given = fx.node.map_arg((node.args, node.kwargs), lambda one: f"%{numbers[one]}")
            used = tuple(numbers[one] for one in node.all_input_nodes)
            kind = (node.target, repr(given), used)
        numbers[node] = kinds.setdefault(kind, len(kinds))
    return numbers
