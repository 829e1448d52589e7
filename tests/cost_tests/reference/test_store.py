"""What is computed once for all backends: the name of a computation, and its reference."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import tvm
from tvm import relax
from tvm.relax import op

from collage.backends.toolchain.artifact_cache import evict_oldest
from collage.cost.reference.store import References
from collage.cost.workload.content import content_key
from tests.cost_tests.support import external_partition, native_partition, tensor


def dense(values: np.ndarray) -> tuple[tvm.IRModule, tvm.IRModule, tvm.IRModule]:
    """The same operators as a native partition and as partitions of two backends."""

    def body(x: relax.Var) -> relax.Expr:
        return op.nn.relu(op.matmul(x, relax.const(values)))

    return (
        native_partition([tensor("x", 2, 3)], body),
        external_partition("one", [tensor("y", 2, 3)], body, "one.matmul_relu", "first"),
        external_partition("two", [tensor("z", 2, 3)], body, "two.dense", "second"),
    )


def test_content_is_named_whatever_the_partition_is_called() -> None:
    first = np.arange(12).reshape(3, 4).astype("float32")
    keys = {content_key(mod) for mod in dense(first)}
    assert len(keys) == 1
    second = first.copy()
    second[1, 1] += 1
    assert content_key(dense(second)[0]) not in keys


def test_content_tells_computations_apart() -> None:
    x = [tensor("x", 4, 4)]
    w = relax.const(np.eye(4, dtype="float32"))
    mods = [
        native_partition(x, lambda a: op.add(op.nn.relu(a), a)),
        native_partition(x, lambda a: op.add(op.nn.relu(a), op.nn.relu(a))),
        native_partition(x, lambda a: op.add(a, op.nn.relu(a))),
        native_partition(x, lambda a: op.nn.softmax(a, 0)),
        native_partition(x, lambda a: op.nn.softmax(a, 1)),
        native_partition(x, lambda a: op.clip(a, 0, 6)),
        native_partition(x, lambda a: op.clip(a, 0, 7)),
        native_partition(x, lambda a: op.matmul(a, w)),
        native_partition(x, lambda a: op.matmul(w, a)),
        native_partition(x, lambda a: op.strided_slice(a, [0], [0], [2])),
        native_partition(x, lambda a: op.strided_slice(a, [0], [1], [3])),
        native_partition(x, lambda a: op.concat([a, op.nn.relu(a)], 0)),
        native_partition(x, lambda a: op.concat([op.nn.relu(a), a], 0)),
        native_partition([tensor("x", 4, 4, dtype="float16")], lambda a: op.add(op.nn.relu(a), a)),
    ]
    assert len({content_key(mod) for mod in mods}) == len(mods)


def test_content_follows_tuples() -> None:
    def parts(first: int) -> tvm.IRModule:
        def body(a: relax.Var) -> relax.Expr:
            return relax.TupleGetItem(op.split(a, 2, 0), first)

        return native_partition([tensor("x", 4, 4)], body)

    assert content_key(parts(0)) != content_key(parts(1))
    assert content_key(parts(0)) == content_key(parts(0))


def test_a_reference_is_computed_once_and_outlives_its_removal(tmp_path: Path) -> None:
    references = References(tmp_path / "references")
    computed: list[str] = []

    def compute_for(key: str, size: int = 10) -> None:
        def compute(place: Path) -> None:
            computed.append(key)
            (place / "inputs").mkdir()
            (place / "inputs" / "0.float32.npy").write_bytes(key.encode() * size)

        references.link(key, tmp_path / f"job{len(computed)}-{key}-{time.monotonic_ns()}", compute)

    for key in ("a", "b", "a", "a", "b"):
        compute_for(key)
    assert computed == ["a", "b"]
    files = sorted(tmp_path.glob("job*/inputs/0.float32.npy"))
    assert len(files) == 5 and {f.read_bytes() for f in files} == {b"a" * 10, b"b" * 10}

    small = References(tmp_path / "references", limit_bytes=25)
    references = small
    compute_for("c")  # Thirty bytes are too many: "a" was used before "b" was.
    left = {p.name for p in (tmp_path / "references").iterdir() if p.is_dir()}
    assert left == {"b", "c"}
    assert all(f.exists() for f in files), "who uses it still has it"
    compute_for("a")
    assert computed == ["a", "b", "c", "a"]


def test_a_failed_computation_leaves_nothing(tmp_path: Path) -> None:
    references = References(tmp_path / "references")

    def fail(place: Path) -> None:
        (place / "half").write_text("done")
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        references.link("key", tmp_path / "job", fail)
    assert not (tmp_path / "job").exists()
    assert [p for p in (tmp_path / "references").iterdir() if p.is_dir()] == []


_SHARER = """
import sys, time
from pathlib import Path
from collage.cost.reference.store import References
folder, name = Path(sys.argv[1]), sys.argv[2]
def compute(place):
    with (folder / "computed").open("a") as log:
        log.write(name)
    time.sleep(0.5)
    (place / "data").write_text("the data")
References(folder / "references").link("key", folder / name, compute)
print((folder / name / "data").read_text())
"""


def test_builders_that_ask_at_once_wait_for_one(tmp_path: Path) -> None:
    sharers = [
        subprocess.Popen(
            [sys.executable, "-c", _SHARER, tmp_path, name], stdout=subprocess.PIPE, text=True
        )
        for name in "xyz"
    ]
    assert [sharer.communicate()[0] for sharer in sharers] == ["the data\n"] * 3
    assert len((tmp_path / "computed").read_text()) == 1


def test_the_folder_is_gone_through_once_it_may_be_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not with every candidate: each look takes longer the more there are."""
    looks: list[int] = []

    def look(folder: Path, limit_bytes: int) -> None:
        looks.append(len(made))
        evict_oldest(folder, limit_bytes)

    monkeypatch.setattr("collage.cost.reference.store.evict_oldest", look)
    references, made = References(tmp_path / "references", limit_bytes=1600), []
    for number in range(40):
        made.append(number)
        references.link(f"{number}", tmp_path / f"job{number}", write_thirty_bytes)
    left = sum(p.stat().st_size for p in (tmp_path / "references").rglob("data"))
    assert len(looks) == 10 and looks[0] == 1
    assert 40 * 30 <= left <= 1600
    for number in range(40, 200):
        references.link(f"{number}", tmp_path / f"job{number}", write_thirty_bytes)
    left = sum(p.stat().st_size for p in (tmp_path / "references").rglob("data"))
    assert left <= 1600 + 1600 / 16


def write_thirty_bytes(folder: Path) -> None:
    (folder / "data").write_bytes(bytes(30))
