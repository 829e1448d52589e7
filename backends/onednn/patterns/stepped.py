"""Products in 8-bit integers."""

from __future__ import annotations

import functools
from collections.abc import Iterator

from collage.backends.contract import PatternTriple, Predicate
from collage.backends.onednn.patterns._base import triple
from collage.backends.onednn.patterns.products import COMMON
from collage.backends.relax.patterns import (
    Chain,
    bias_per_channel,
    operator,
    residual_same_shape,
    with_activation,
    with_bias,
    with_residual,
)
from collage.backends.relax.stepped import NAME as STEPPED


def stepped() -> Iterator[PatternTriple]:
    """Triples of products of bytes."""
    for centred in (False, True):
        name = "shifted_stepped_matmul" if centred else "stepped_matmul"
        base = functools.partial(operator, STEPPED, 3 + centred, range(1, 3 + centred))
        yield _stepped_triple(name, base())
        yield _stepped_triple(f"{name}_add", with_residual(base()), residual_same_shape)
        bias = bias_per_channel(-1)
        yield _stepped_triple(f"{name}_bias", with_bias(base()), bias)
        for activation in COMMON:
            chain = with_activation(with_bias(base()), activation)
            yield _stepped_triple(f"{name}_bias_{activation}", chain, bias)
        added = with_residual(with_bias(base()))
        yield _stepped_triple(f"{name}_bias_add", added, bias, residual_same_shape)


def _stepped_triple(name: str, chain: Chain, *predicates: Predicate) -> PatternTriple:
    # The weights are bytes, which is the operator's own business.
    annotations = {key: part for key, part in chain.annotations.items() if key != "arg1"}
    return triple(name, Chain(chain.pattern, annotations), *predicates)
