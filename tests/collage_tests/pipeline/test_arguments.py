"""What callers give that is no shape, no wish and no number: one line, before anything is done."""

from __future__ import annotations

from typing import Any

import onnx.parser
import pytest

import collage
from collage.backends.contract.errors import UserError

_NET = """<ir_version: 8, opset_import: ["" : 17]>
    net (float[2, 4] x) => (float[2, 4] y) { y = Relu(x) }"""


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"shapes": [(2, 4)]}, "shapes are by input.* not a list"),
        ({"shapes": {"x": None}}, "input 'x' is given no shape"),
        ({"pin": "Relu"}, "pin is by operator.* not a str"),
        ({"ban": ["Relu"]}, "ban is by operator.* not a list"),
        ({"memory_limit_bytes": "1G"}, "a number of bytes, for example .* not '1G'"),
        ({"memory_limit_bytes": -1}, "has to be positive"),
        ({"time_budget_sec": "5"}, "a number of seconds, not '5'"),
        ({"time_budget_sec": float("nan")}, "a number of seconds, not nan"),
        ({"num_threads": -2}, "num_threads is -2, and has to be a number of threads"),
    ],
)
def test_arguments_of_another_kind_are_refused(given: dict[str, Any], says: str) -> None:
    with pytest.raises(UserError, match=says):
        collage.optimize(onnx.parser.parse_model(_NET), ["llvm"], **given)
