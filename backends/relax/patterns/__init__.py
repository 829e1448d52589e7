"""What a backend takes, as patterns and predicates that several libraries share.

A pattern is a :class:`Chain`: an operator, then a bias, a residual, an activation. Predicates
refuse matches with a reason; :func:`derives` makes one of whatever reads a match into a problem.
Libraries that take single operators find theirs in ``operators`` and ``operator_checks``.
"""

from collage.backends.relax.patterns.activations import (
    ACTIVATIONS,
    clip,
    hard_sigmoid,
    hard_swish,
    silu_chain,
    with_activation,
)
from collage.backends.relax.patterns.chains import (
    Chain,
    either_order,
    operator,
    permuted_matmuls,
    with_bias,
    with_residual,
)
from collage.backends.relax.patterns.predicates import (
    all_of,
    bias_per_channel,
    derives,
    float32_tensors,
    residual_same_shape,
)

__all__ = [
    "ACTIVATIONS",
    "Chain",
    "all_of",
    "bias_per_channel",
    "clip",
    "derives",
    "either_order",
    "float32_tensors",
    "hard_sigmoid",
    "hard_swish",
    "operator",
    "permuted_matmuls",
    "residual_same_shape",
    "silu_chain",
    "with_activation",
    "with_bias",
    "with_residual",
]
