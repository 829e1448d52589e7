"""Which of TVM's kernels are as good with channels last as with channels first."""

from __future__ import annotations

from collections.abc import Sequence

from tvm import relax

_ANY_ORDER = frozenset(
    f"relax.{name}"
    for name in (
        *("add", "subtract", "multiply", "divide", "maximum", "minimum", "power", "clip", "abs"),
        *("exp", "log", "sqrt", "rsqrt", "square", "negative", "sigmoid", "tanh", "erf", "where"),
        *("less", "greater", "nn.relu", "nn.silu", "nn.gelu", "nn.leakyrelu", "nn.softplus"),
        *("concat", "nn.pad", "image.resize2d"),
    )
)


def takes_any_order(operators: Sequence[relax.Expr]) -> bool:
    """Whether a kernel of these operators only reads and writes its elements in another order.

    Parameters
    ----------
    operators : sequence of relax.Expr
        The values of a partition's bindings.

    Returns
    -------
    bool
        False where one multiplies or reduces: schedules for that are for channels first.

    Examples
    --------
    >>> x = relax.Var("x", relax.TensorType((1, 2, 4, 4), "float32"))
    >>> takes_any_order([relax.op.nn.relu(x)]), takes_any_order([relax.op.nn.max_pool2d(x)])
    (True, False)
    """
    return all(
        isinstance(value, relax.Call) and str(getattr(value.op, "name", "")) in _ANY_ORDER
        for value in operators
    )
