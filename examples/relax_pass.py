"""Partition a module written in TVMScript, as one pass among TVM's own."""

from __future__ import annotations

import sys
from pathlib import Path

import tvm
from tvm import relax
from tvm.script import ir as I
from tvm.script import relax as R

from collage.transform import CollagePartition


@I.ir_module
class Perceptron:
    @R.function
    def main(x: R.Tensor((16, 64), "float32"), weight: R.Tensor((64, 64), "float32")) -> R.Tensor(
        (16, 64), "float32"
    ):
        with R.dataflow():
            hidden = R.matmul(x, weight)
            active = R.nn.relu(hidden)
            scores = R.nn.softmax(active)
            R.output(scores)
        return scores


def main(log: Path) -> None:
    passes = tvm.transform.Sequential(
        [
            relax.transform.CanonicalizeBindings(),
            CollagePartition(["llvm", "openblas"], log=log),
        ]
    )
    partitioned = passes(Perceptron)
    print(partitioned.script())  # ordinary Relax BYOC: external partitions carry Codegen


if __name__ == "__main__":
    place = Path(sys.argv[1] if len(sys.argv) > 1 else "out/relax_pass")
    place.mkdir(parents=True, exist_ok=True)
    main(place / "log.jsonl")
