"""What OpenVINO is not given, since it would compute it in another dtype, or not at all."""

from __future__ import annotations

import numpy as np
import pytest
from tvm import relax
from tvm.relax import op

from collage.testing.graphs import graph
from tests.backends_tests.openvino.support import installed, is_taken_whole, target

pytestmark = installed


def test_long_integers_and_bounds_of_integers_are_left_to_others() -> None:
    both = [(3, 5)] * 2
    assert not is_taken_whole(graph(both, lambda emit, x, y: op.add(x, y), "int64"), target())
    # A bound is a number of float32 there, and 100000001 is none.
    clipped = graph([(3, 5)], lambda emit, x: op.clip(x, -5, 100000001), "int32")
    assert not is_taken_whole(clipped, target())
    # With AVX2 alone it chose wrongly between integers.
    chosen = relax.const(np.arange(5) % 3 > 0)
    for dtype, taken in (("int32", False), ("float32", True)):
        choice = graph([(3, 5)] * 2, lambda emit, x, y: op.where(chosen, x, y), dtype)
        assert is_taken_whole(choice, target()) is taken


@pytest.mark.parametrize(
    "name", ["equal", "not_equal", "less", "less_equal", "greater", "greater_equal"]
)
def test_integers_are_not_compared(name: str) -> None:
    """As numbers of float32, of which 2 ** 24 and the next are the same."""
    for dtype, taken in (("int32", False), ("float32", True)):
        mod = graph([(3, 5)] * 2, lambda emit, x, y: getattr(op, name)(x, y), dtype)
        assert is_taken_whole(mod, target()) is taken


@pytest.mark.parametrize("fill, taken", [(-np.inf, False), (-30000.0, True)])
def test_a_constant_infinity_in_bfloat16_is_left_to_others(fill: float, taken: bool) -> None:
    """OpenVINO's compiler ends at one, as masks of attention have them."""
    mask = relax.const(np.where(np.tri(4), 0.0, fill).astype("bfloat16"), "bfloat16")
    mod = graph([(2, 4, 4)], lambda emit, x: op.nn.softmax(emit(op.add(x, mask))), "bfloat16")
    assert is_taken_whole(mod, target()) is taken
