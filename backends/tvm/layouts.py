"""Which of TVM's kernels are as good with channels last as with channels first, or better."""

from __future__ import annotations

from collections.abc import Sequence

from tvm import relax

_ANY_ORDER = frozenset(
    f"relax.{name}"
    for name in (
        *("add", "subtract", "multiply", "divide", "maximum", "minimum", "power", "clip", "abs"),
        *("exp", "log", "sqrt", "rsqrt", "square", "negative", "sigmoid", "tanh", "erf", "where"),
        *("less", "greater", "nn.relu", "nn.silu", "nn.gelu", "nn.leakyrelu", "nn.softplus"),
        *("concat", "nn.pad", "image.resize2d", "nn.max_pool2d", "nn.avg_pool2d", "mean"),
        *("nn.group_norm", "nn.instance_norm"),
    )
)


def takes_any_order(operators: Sequence[relax.Expr]) -> bool:
    """Whether a kernel of these operators may run on pictures in either layout.

    Parameters
    ----------
    operators : sequence of relax.Expr
        The values of a partition's bindings.

    Returns
    -------
    bool
        False where one is there whose schedules are for channels first.

    Examples
    --------
    >>> x = relax.Var("x", relax.TensorType((1, 2, 4, 4), "float32"))
    >>> takes_any_order([relax.op.nn.relu(x)]), takes_any_order([relax.op.nn.softmax(x)])
    (True, False)
    """
    return all(
        isinstance(value, relax.Call) and str(getattr(value.op, "name", "")) in _ANY_ORDER
        for value in operators
    )
