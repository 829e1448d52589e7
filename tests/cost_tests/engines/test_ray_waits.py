"""How long a search waits for nodes of Ray's, without a cluster around it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from collage.backends.contract import BuildContext
from collage.backends.contract.errors import MeasurementError, TargetError
from collage.cost.config import MeasureConfig
from collage.cost.device import CPU_POLICY, Device
from collage.cost.engines.ray import fleet
from collage.cost.engines.ray.cluster import Node
from collage.cost.measure.engine import Work


class SilentCluster:
    """Its nodes are there, and never say what they have."""

    address = "ray://silent:10001"

    def __init__(self, *names: str, head: str = "") -> None:
        self._nodes = [Node(name, name, "127.0.0.2", 2, 0, frozenset()) for name in names]
        self._head = head
        if head:
            self._nodes.insert(0, Node("head", "head", "127.0.0.1", 0, 0, frozenset()))
        self.ray: Any = self

    def connect(self) -> None:
        """It is."""

    def leave(self) -> None:
        """Nobody else is told."""

    def nodes(self) -> list[Node]:
        return self._nodes

    def probe(self, node: Node, kind: str, *, all_gpus: bool) -> object:
        return node.name

    def wait(self, references: list[object], timeout: float) -> tuple[list[object], list[object]]:
        answered = [one for one in references if one == "head"]
        return answered, [one for one in references if one != "head"]

    def get(self, reference: object) -> str:
        """Why the head is of no use, the only answer there is."""
        return self._head


@contextmanager
def fleet_of(
    cluster: SilentCluster, folder: Path, device: Device | None, patience_sec: float
) -> Iterator[fleet.Fleet]:
    """A fleet of it that is closed in the end."""
    context = BuildContext(folder / "cache", folder / "work")
    work = Work(CPU_POLICY, context, MeasureConfig(), device=device)
    found = fleet.Fleet(cluster, work, patience_sec)  # type: ignore[arg-type]
    try:
        yield found
    finally:
        found.close()


@pytest.fixture(autouse=True)
def short_first_look(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fleet, "_FIRST_SEC", 0.5)


@pytest.mark.parametrize(
    "names, at_least_sec, reason",
    [(("young",), 1.0, "young: it has not answered yet"), ((), 0.1, "it has no nodes")],
)
def test_a_node_that_has_just_come_is_waited_for(
    names: tuple[str, ...], at_least_sec: float, reason: str, tmp_path: Path
) -> None:
    """All others had been killed: the search ended while the new one was being looked at."""
    device = Device("cpu", "Some CPU", cores=4, features="0123")
    begin = time.monotonic()
    with (
        fleet_of(SilentCluster(*names), tmp_path, device, 0.1) as found,
        pytest.raises(MeasurementError, match=f"no node to build on: {reason}"),
    ):
        found.builders()
    assert time.monotonic() - begin >= at_least_sec


@pytest.mark.parametrize(
    "names, at_least_sec, reason",
    [(("young",), 1.0, "young: it has not answered yet"), ((), 0.3, "head: it is busy")],
)
def test_a_head_that_is_of_no_use_does_not_end_the_wait(
    names: tuple[str, ...], at_least_sec: float, reason: str, tmp_path: Path
) -> None:
    """It answers at once, which says nothing of the nodes that it is the head of."""
    begin = time.monotonic()
    with (
        fleet_of(SilentCluster(*names, head="it is busy"), tmp_path, None, 0.3) as found,
        pytest.raises(TargetError, match=f"no node .* can measure .*{reason}"),
    ):
        found.device()
    assert at_least_sec <= time.monotonic() - begin < at_least_sec + 5
