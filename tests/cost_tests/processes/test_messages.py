"""Messages between a search and its workers: they arrive as they were sent, or as a typed error."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collage.backends.contract import BuildContext, LibraryRequirement
from collage.backends.contract.errors import ProtocolError, TargetError
from collage.backends.link import CompiledLibrary
from collage.backends.relax.tensor_spec import TensorSpec
from collage.cost.base import Clocks, CostStatus
from collage.cost.call_times import CallTime
from collage.cost.config import CudaConfig, MeasureConfig
from collage.cost.device import Device
from collage.cost.processes import messages
from collage.cost.processes.described import TargetMessage, WorkloadMessage
from collage.cost.processes.messages import (
    Answer,
    AnyRequest,
    Build,
    Built,
    Check,
    Checked,
    Compiled,
    CompileModel,
    Connect,
    Detected,
    Done,
    Failure,
    Judge,
    Load,
    Measure,
    Measured,
    Prepare,
    Run,
    Time,
    TimeCalls,
    Timed,
    TimedCalls,
    Tune,
    Tuned,
    Unreadable,
)
from collage.cost.processes.protocol import (
    PROTOCOL,
    Message,
    NotReady,
    Ready,
    Settings,
    decode,
    decode_handshake,
    encode,
)
from collage.cost.workload.data import DataSpec
from tests.cost_tests.conftest import ToyTarget

TEXT = st.text(max_size=20)
PATHS = st.text("abc/ é.", min_size=1, max_size=20).map(Path)
SECONDS = st.floats(0.0, 1e6)
NUMBERS = st.floats(allow_nan=False)
SIZES = st.integers(-(2**63), 2**63 - 1)
SHAPES = st.lists(st.integers(0, 1 << 40), max_size=4).map(tuple)
OPTIONS = st.dictionaries(
    TEXT, st.none() | st.booleans() | st.integers() | TEXT | st.floats(allow_nan=False), max_size=3
)


def tuples(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.lists(strategy, max_size=3).map(tuple)


CONTEXTS = st.builds(
    BuildContext,
    PATHS,
    PATHS,
    st.integers(0, 64),
    TEXT,
    st.booleans(),
    st.none() | PATHS,
    st.booleans(),
)
TARGETS = st.builds(TargetMessage, TEXT, OPTIONS, TEXT)
WORKLOADS = st.builds(
    WorkloadMessage,
    TEXT,
    tuples(st.builds(DataSpec, SHAPES, TEXT, NUMBERS | SIZES, NUMBERS | SIZES, NUMBERS, NUMBERS)),
    tuples(st.builds(TensorSpec, SHAPES, TEXT)),
    tuples(st.none() | SIZES),
    tuples(st.builds(TensorSpec, SHAPES, TEXT)),
    TEXT,
)
CONFIGS = st.builds(
    MeasureConfig,
    repeat=st.integers(4, 100),
    slow_call_sec=SECONDS,
    target_spread=st.just(math.inf) | SECONDS,
    cuda=st.builds(CudaConfig, repeat=st.integers(10, 1000)),
)
LIBRARIES = st.builds(
    CompiledLibrary,
    PATHS,
    tuples(PATHS),
    tuples(st.builds(LibraryRequirement, TEXT, TEXT, TEXT, PATHS)),
    st.dictionaries(TEXT, TEXT, max_size=3),
)
CLOCKS = st.none() | st.builds(Clocks, SIZES, SIZES)
TESTED = (PATHS, tuples(PATHS), CONFIGS)
REPLACE = st.booleans()

REQUESTS = {
    Build: st.builds(Build, WORKLOADS, TARGETS, PATHS, PATHS, CONTEXTS, SIZES),
    Tune: st.builds(Tune, tuples(WORKLOADS), TARGETS, CONTEXTS, SIZES),
    CompileModel: st.builds(CompileModel, PATHS, PATHS, PATHS, tuples(TARGETS), CONTEXTS),
    Run: st.builds(Run, *TESTED),
    Prepare: st.builds(Prepare, *TESTED),
    Measure: st.builds(Measure),
    Judge: st.builds(Judge),
    Load: st.builds(Load, *TESTED, TEXT),
    Time: st.builds(Time, TEXT),
    Check: st.builds(Check, TEXT),
    TimeCalls: st.builds(TimeCalls, TEXT),
    Connect: st.builds(Connect, TEXT, SIZES, TEXT, TEXT, TEXT, PATHS, SECONDS, SECONDS, SIZES),
}
ANSWERS = {
    Done: st.builds(Done, replace=REPLACE),
    Tuned: st.builds(Tuned, workloads=tuples(SIZES), is_over=st.booleans(), replace=REPLACE),
    Built: st.builds(Built, library=PATHS, build_sec=SECONDS, replace=REPLACE),
    Compiled: st.builds(Compiled, library=LIBRARIES, replace=REPLACE),
    TimedCalls: st.builds(
        TimedCalls,
        calls=tuples(st.builds(CallTime, TEXT, SECONDS, SECONDS, SECONDS, SIZES)),
        replace=REPLACE,
    ),
    Checked: st.builds(Checked, largest_error=SECONDS, first_call_sec=SECONDS),
    Timed: st.builds(Timed, samples_sec=tuples(SECONDS), clocks=CLOCKS),
    Measured: st.builds(
        Measured,
        largest_error=SECONDS,
        first_call_sec=SECONDS,
        samples_sec=tuples(SECONDS),
        clocks=CLOCKS,
        replace=REPLACE,
    ),
    Detected: st.builds(
        Detected,
        device=st.builds(
            Device, TEXT, TEXT, SIZES, TEXT, TEXT, SIZES, st.lists(TEXT, max_size=3).map(tuple)
        ),
        load=st.none() | SECONDS,
    ),
    Failure: st.builds(
        Failure,
        status=st.sampled_from(CostStatus).filter(lambda status: status is not CostStatus.VALID),
        reason=TEXT,
        replace=REPLACE,
    ),
    Unreadable: st.builds(Unreadable, reason=TEXT),
}
HANDSHAKE = {
    Settings: st.builds(
        Settings,
        tuples(TEXT),
        TEXT,
        st.booleans(),
        st.booleans(),
        st.none() | st.integers(0, 1 << 40),
    ),
    Ready: st.builds(Ready),
    NotReady: st.builds(NotReady, TEXT),
}
MESSAGES: dict[type[Message], Any] = {**REQUESTS, **ANSWERS, **HANDSHAKE}


def test_every_message_is_tested() -> None:
    assert set(REQUESTS) == set(get_args(AnyRequest))
    assert set(ANSWERS) == set(Answer.__subclasses__())
    assert set(HANDSHAKE) == {Settings, Ready, NotReady}


@pytest.mark.parametrize("kind", MESSAGES, ids=lambda kind: kind.__name__)
@given(data=st.data())
def test_a_message_arrives_as_it_was_sent(kind: type[Message], data: st.DataObject) -> None:
    message = data.draw(MESSAGES[kind])
    line = encode(message)
    assert b"\n" not in line
    assert decode(line, kind) == message
    if kind in REQUESTS:
        assert decode(line, AnyRequest) == message


@pytest.mark.parametrize("kind", MESSAGES, ids=lambda kind: kind.__name__)
@given(data=st.data())
def test_what_differs_in_any_field_is_refused(kind: type[Message], data: st.DataObject) -> None:
    """At every depth: a field too many, a field of another type, a field that is missing."""
    message = data.draw(MESSAGES[kind])
    value = json.loads(encode(message))
    places = list(_objects(value))
    place = data.draw(st.sampled_from(places))
    place["no such field"] = 1
    with pytest.raises(ProtocolError, match="no such field"):
        decode(json.dumps(value).encode(), kind)
    del place["no such field"]
    # The options of a backend are its own affair, as are the names of runtimes.
    for name in {*kind.__struct_fields__} - {"runtimes", "replace"}:
        with pytest.raises(ProtocolError, match="cannot read the message"):
            decode(json.dumps({**value, name: {"of": ["another", "type"]}}).encode(), kind)
    name = data.draw(st.sampled_from([*kind.__struct_fields__, "task", "answer", "type"]))
    if name in value and name not in ("replace", "protocol"):
        del value[name]
        if name in kind.__struct_fields__:
            with pytest.raises(ProtocolError, match="missing required field"):
                decode(json.dumps(value).encode(), kind)


def _objects(value: Any) -> list[dict[str, Any]]:
    """All objects with fields that are declared, a message's own included."""
    if isinstance(value, list):
        return [found for item in value for found in _objects(item)]
    if not isinstance(value, dict):
        return []
    inner = [v for name, v in value.items() if name not in ("options", "runtimes")]
    return [value, *_objects(inner)]


@given(data=st.data())
def test_a_torn_line_is_refused(data: st.DataObject) -> None:
    kind = data.draw(st.sampled_from([*MESSAGES]))
    line = encode(data.draw(MESSAGES[kind]))
    cut = data.draw(st.integers(0, len(line) - 1))
    with pytest.raises(ProtocolError, match="cannot read the message"):
        decode(line[:cut], kind)


@given(line=st.binary() | st.text().map(str.encode))
def test_random_bytes_are_refused(line: bytes) -> None:
    for kind in (AnyRequest, Built | Failure | Unreadable, Ready | NotReady):
        with pytest.raises(ProtocolError):
            decode(line, kind)
    with pytest.raises(ProtocolError):
        decode_handshake(line, Settings)


_WORDS = TEXT | st.sampled_from(["run", "build"])
_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | _WORDS,
    lambda inner: st.lists(inner) | st.dictionaries(
        st.sampled_from(["task", "answer", "library", "config", "status", "cuda"]) | TEXT, inner
    ),
    max_leaves=20,
)  # fmt: skip


@given(value=_JSON)
def test_any_other_json_is_a_message_or_refused(value: Any) -> None:
    for kind in (AnyRequest, Measured | Failure | Unreadable):
        try:
            decode(json.dumps(value).encode(), kind)
        except ProtocolError as err:
            assert "\n" not in str(err)


@pytest.mark.parametrize("line", [b"[" * 100_000, b"9" * 10_000, b'{"task": "run"' + b"\xff}", b""])
def test_what_breaks_parsers_is_refused(line: bytes) -> None:
    with pytest.raises(ProtocolError):
        decode(line, AnyRequest)


@pytest.mark.parametrize("version", [PROTOCOL + 1, PROTOCOL - 1, "1", None])
def test_another_version_is_said_to_be_one(version: Any) -> None:
    for message in (
        Ready(),
        NotReady("no"),
        Settings((), "module:Class", False, False, None, None),
    ):
        value = {**json.loads(encode(message)), "protocol": version, "new in that version": 1}
        with pytest.raises(ProtocolError, match=f"versions {version} and {PROTOCOL}"):
            decode_handshake(json.dumps(value).encode(), type(message))
    with pytest.raises(ProtocolError, match="versions None"):
        decode_handshake(b"{}", Settings)


def test_a_failure_is_not_valid() -> None:
    line = b'{"answer": "failure", "status": "valid", "reason": ""}'
    with pytest.raises(ProtocolError, match="a failure is not valid"):
        decode(line, Failure)


def test_only_plain_values_cross() -> None:
    with pytest.raises(NotImplementedError, match="does not cross between processes"):
        encode(TargetMessage("toy", {"callback": print}, "llvm"))


def test_targets_survive(toy: ToyTarget) -> None:
    target = toy(behaviour="slow")
    message: TargetMessage = decode(encode(TargetMessage.of(target)), TargetMessage)
    assert message.target() == target


def test_a_target_with_an_option_that_its_backend_lacks_is_named(toy: ToyTarget) -> None:
    message = TargetMessage.of(toy())
    other = messages.TargetMessage("toy", {**message.options, "speed": 1}, message.device)
    with pytest.raises(TargetError, match="has no attribute 'speed'"):
        other.target()
