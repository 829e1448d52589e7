"""A tiny model optimized once: real search, real backends, real bundle."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from onnx import ModelProto

import collage
from benchmarks.networks.tiny import tiny_mobilenet
from collage.cost.progress import ProgressEvent
from tests.collage_tests.pipeline.flat_costs import FlatCosts

TARGETS = ["llvm", "onednn", "openblas"]


def one_block() -> ModelProto:
    """A stem, an inverted residual block, pooling and a classifier: what is searched in earnest."""
    return tiny_mobilenet(strided=False)


@dataclass(frozen=True)
class Optimized:
    """What one search over a tiny network left behind."""

    result: collage.Result
    bundle: Path
    log: Path
    events: list[ProgressEvent]


@pytest.fixture(scope="session")
def optimized(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Optimized]:
    folder = tmp_path_factory.mktemp("optimized")
    log = folder / "log.jsonl"
    events: list[ProgressEvent] = []
    result = collage.optimize(one_block(), TARGETS, log=log, progress=events.append)
    yield Optimized(result, result.export(folder / "bundle"), log, events)


@pytest.fixture(scope="session")
def compiled() -> collage.Result:
    """The same network for every CPU backend at once, compiled without any measuring."""
    return collage.optimize(tiny_mobilenet(), TARGETS, cost_model=FlatCosts("onednn"))


@pytest.fixture(scope="session")
def compiled_bundle(compiled: collage.Result, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Its bundle."""
    return compiled.export(tmp_path_factory.mktemp("compiled") / "bundle")
