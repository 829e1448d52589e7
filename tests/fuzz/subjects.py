"""What is fed with mutated bytes: models, logs, bundles, and messages between processes."""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from pathlib import Path
from typing import ClassVar

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from tvm.relax import op

import collage
from benchmarks.conformance.cases import cases
from collage.backends.contract.errors import BundleError, ProtocolError, UserError
from collage.cost import TableCostModel
from collage.cost.base import Cost, CostStatus
from collage.cost.database.jsonl import JsonLinesDatabase
from collage.cost.database.record import PARTITION, Record, RecordKey
from collage.cost.processes.messages import Answer, Checked, Done, Failure, Timed
from collage.cost.processes.protocol import decode, encode
from collage.importers import load_model
from collage.testing import graph
from tests.fuzz.fields import mutated_fields
from tests.fuzz.mutations import mutated, mutated_json


class Subject(ABC):
    """One kind of input: what is right, and what reads it."""

    allowed: ClassVar[tuple[type[Exception], ...]]
    """What a wrong one may end in."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @abstractmethod
    def feed(self, rng: random.Random) -> None:
        """Read one mutated input."""


class Models(Subject):
    """ONNX files: convolution, normalization, a product, a loop over shapes."""

    allowed = (UserError,)

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.content = _model().SerializeToString()

    def feed(self, rng: random.Random) -> None:
        path = self.folder / "model.onnx"
        path.write_bytes(mutated(self.content, rng))
        load_model(path)


class Fields(Subject):
    """ONNX's own cases with other operators, types, names, numbers, more or less of each."""

    allowed = (UserError,)

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.models = [case.model.SerializeToString() for _, case in sorted(cases().items())]
        self.operators = tuple(sorted({schema.name for schema in onnx.defs.get_all_schemas()}))

    def feed(self, rng: random.Random) -> None:
        model = onnx.ModelProto.FromString(rng.choice(self.models))
        mutated_fields(model, rng, self.operators)
        path = self.folder / "model.onnx"
        path.write_bytes(model.SerializeToString())
        load_model(path)


class Logs(Subject):
    """Logs of a few lines: whatever is wrong is skipped and reported, the rest is read."""

    allowed = ()

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        cost = Cost.of_samples([2e-6, 1e-6, 3e-6, 2e-6, 2e-6, 2e-6])
        self.lines = [
            Record(_key(f"{n:064x}"), cost, f"relu {n}", "tvm").to_json().encode()
            for n in range(1, 4)
        ]

    def feed(self, rng: random.Random) -> None:
        path = self.folder / f"log{rng.random()}.jsonl"
        wrong = mutated_json(self.lines[1], rng)
        path.write_bytes(b"\n".join([self.lines[0], wrong, self.lines[2]]) + b"\n")
        database = JsonLinesDatabase(path, read_only=True)
        for line in (self.lines[0], self.lines[2]):
            record = Record.from_json(line.decode())
            assert database.lookup(record.key) is not None, "a right line is lost"
        path.unlink()


class Bundles(Subject):
    """Manifests and reports of a bundle; its libraries are found changed by their hashes."""

    allowed = (BundleError,)

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        mod = graph([(1, 8)], lambda emit, x: op.exp(x))
        costs = TableCostModel({("exp 1x8", "tvm"): 1e-6})
        result = collage.optimize(mod, ["llvm"], cost_model=costs)
        self.bundle = result.export(folder / "bundle")
        self.right = {
            name: (self.bundle / name).read_bytes()
            for name in ("manifest.json", "report.json", "model.so")
        }

    def feed(self, rng: random.Random) -> None:
        name = rng.choice(("manifest.json", "manifest.json", "report.json", "model.so"))
        change = mutated if name == "model.so" else mutated_json
        wrong = change(self.right[name], rng)
        self._write(name, wrong)
        try:
            loaded = collage.load(self.bundle)
            if name == "report.json":
                _ = loaded.report
            assert name != "model.so" or wrong == self.right[name], "a changed library was loaded"
        finally:
            self._write(name, self.right[name])

    def _write(self, name: str, content: bytes) -> None:
        # A file of its own: a library that is loaded must not change under its process.
        (self.bundle / name).unlink()
        (self.bundle / name).write_bytes(content)


class Messages(Subject):
    """Lines between a search and its workers."""

    allowed = (ProtocolError,)

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.lines = [encode(message) for message in _messages()]

    def feed(self, rng: random.Random) -> None:
        decode(mutated_json(rng.choice(self.lines), rng), Done | Checked | Timed | Failure)


def _model() -> onnx.ModelProto:
    rng = np.random.default_rng(0)

    def weight(name: str, *shape: int) -> TensorProto:
        return numpy_helper.from_array(rng.standard_normal(shape).astype("float32"), name)

    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["y"], pads=[1, 1, 1, 1], kernel_shape=[3, 3]),
        helper.make_node("BatchNormalization", ["y", "s", "s", "s", "s"], ["n"], epsilon=1e-3),
        helper.make_node("Relu", ["n"], ["r"]),
        helper.make_node("Shape", ["r"], ["shape"]),
        helper.make_node("Reshape", ["r", "to"], ["flat"]),
        helper.make_node("Gemm", ["flat", "g"], ["z"], transB=1, alpha=0.5),
        helper.make_node("Reshape", ["z", "back"], ["out"]),
        helper.make_node("Resize", ["r", "", "scales"], ["big"], mode="linear"),
    ]
    floats = [weight("w", 4, 3, 3, 3), weight("b", 4), weight("s", 4), weight("g", 5, 64)]
    numbers = [
        numpy_helper.from_array(np.array([1, -1]), "to"),
        numpy_helper.from_array(np.array([5, 1]), "back"),
        numpy_helper.from_array(np.array([1, 1, 2, 2], "float32"), "scales"),
    ]
    graph = helper.make_graph(
        *(nodes, "net"),
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, 4, 4])],
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in ("out", "big")],
        [*floats, *numbers],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def _key(workload: str) -> RecordKey:
    facts = (workload, "8x8:float32", '{"backend": "tvm"}', (("tvm", "0.27"),), "g++", "0.27")
    return RecordKey(PARTITION, *facts, "a CPU", driver="none", num_threads=2, config="{}")


def _messages() -> list[Answer]:
    return [
        Done(),
        Checked(largest_error=1e-6, first_call_sec=0.01),
        Timed(samples_sec=(1e-6, 2e-6), clocks=None),
        Failure(status=CostStatus.CRASHED, reason="the candidate died of SIGSEGV"),
    ]


SUBJECTS: dict[str, type[Subject]] = {
    "models": Models,
    "fields": Fields,
    "logs": Logs,
    "bundles": Bundles,
    "messages": Messages,
}
