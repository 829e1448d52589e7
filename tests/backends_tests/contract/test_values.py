"""Options, verdicts and target identity."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import pytest
import tvm

from collage.backends.contract import Availability, Backend, BackendTarget, PatternTriple, Verdict
from collage.backends.contract.errors import CollageError, TargetError, UserError
from collage.backends.contract.options import NoOptions


@dataclass(frozen=True)
class Options:
    level: int = 1
    ratio: float = 0.5
    fast: bool = True
    name: str | None = None
    mode: Literal["small", "large"] = "small"

    def __post_init__(self) -> None:
        if self.level < 0:
            raise ValueError(f"level must not be negative, not {self.level}")


class Configurable(Backend):
    name = "configurable"
    options_type = Options

    def probe(self) -> Availability:
        return Availability(True)

    def patterns(self, target: BackendTarget) -> Sequence[PatternTriple]:
        return ()


class Plain(Configurable):
    name = "plain"
    options_type = NoOptions


def test_options_take_what_is_given_and_default_the_rest() -> None:
    options = Configurable().parse_options({"level": 3, "name": "x", "mode": "large"})
    assert options == Options(level=3, name="x", mode="large")


@pytest.mark.parametrize(
    ("name", "value", "wanted"),
    [
        ("level", "3", "int"),
        ("level", True, "int"),
        ("level", 1.0, "int"),
        ("ratio", False, "float"),
        ("fast", 1, "bool"),
        ("name", 5, "str | None"),
        ("mode", "huge", "one of 'small', 'large'"),
        ("level", None, "int"),
    ],
)
def test_ill_typed_option_names_attribute_type_and_value(
    name: str, value: object, wanted: str
) -> None:
    with pytest.raises(TargetError) as caught:
        Configurable().parse_options({name: value})
    assert str(caught.value) == (
        f"attribute '{name}' of target 'configurable' must be {wanted}, "
        f"not {type(value).__name__} {value!r}"
    )
    assert caught.value.value == value


@pytest.mark.parametrize(("name", "value"), [("ratio", 2), ("name", None), ("fast", False)])
def test_well_typed_options_are_accepted(name: str, value: object) -> None:
    assert getattr(Configurable().parse_options({name: value}), name) == value


def test_unknown_option_lists_valid_ones_sorted() -> None:
    with pytest.raises(TargetError, match="valid attributes: fast, level, mode, name, ratio"):
        Configurable().parse_options({"lvl": 3})
    with pytest.raises(TargetError, match="valid attributes: none"):
        Plain().parse_options({"lvl": 3})


def test_value_that_the_options_refuse_is_a_target_error() -> None:
    with pytest.raises(TargetError, match="target 'configurable': level must not be negative"):
        Configurable().parse_options({"level": -1})


def test_options_of_evaluated_annotations_are_checked_alike() -> None:
    @dataclass(frozen=True)
    class Evaluated:
        count: int = 0

    Evaluated.__annotations__["count"] = int
    backend = Plain()
    backend.options_type = Evaluated  # type: ignore[misc]
    assert backend.parse_options({"count": 2}) == Evaluated(2)
    with pytest.raises(TargetError, match="must be int, not str"):
        backend.parse_options({"count": "2"})


def test_verdict_is_its_own_truth() -> None:
    assert Verdict.yes()
    refused = Verdict.no("too small")
    assert not refused
    assert refused.reason == "too small"


def test_targets_are_equal_by_content() -> None:
    device = tvm.target.Target("llvm")
    one, same = (
        BackendTarget("configurable", tvm.target.Target("llvm"), Options(level=2)) for _ in range(2)
    )
    assert one == same
    assert hash(one) == hash(same)
    assert one.key() == same.key()
    assert json.loads(one.key())["options"]["level"] == 2
    others = [
        BackendTarget("configurable", device, Options(level=3)),
        BackendTarget("plain", device, Options(level=2)),
        BackendTarget(
            "configurable",
            tvm.target.Target({"kind": "llvm", "mcpu": "skylake-avx512"}),
            Options(level=2),
        ),
    ]
    assert len({one, same, *others}) == 4
    assert one != "configurable"


def test_values_cannot_be_changed() -> None:
    target = BackendTarget("plain", tvm.target.Target("llvm"))
    with pytest.raises(dataclasses.FrozenInstanceError):
        target.backend = "other"  # type: ignore[misc]


def test_errors_carry_the_value_that_broke_the_rule() -> None:
    error = TargetError("no such target", value="x")
    assert isinstance(error, UserError)
    assert isinstance(error, CollageError)
    assert error.value == "x"
    assert str(error) == "no such target"
