"""From the bytes of an ONNX file to a bundle, and from the bundle to an answer."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import onnx
import onnx.parser

import collage

MODEL = """
<ir_version: 8, opset_import: ["" : 17]>
classifier (float[8, 64] features) => (float[8, 10] scores) {
    hidden = MatMul(features, weight)
    active = Relu(hidden)
    scores = MatMul(active, head)
}
"""


def main(folder: Path) -> None:
    random = np.random.default_rng(0)
    model = onnx.parser.parse_model(MODEL)
    for name, shape in {"weight": (64, 128), "head": (128, 10)}.items():
        array = random.standard_normal(shape, np.float32)
        model.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    file = folder / "classifier.onnx"
    file.write_bytes(model.SerializeToString())

    result = collage.optimize(file, ["llvm", "openblas"], log=folder / "classifier.jsonl")
    bundle = result.export(folder / "bundle")
    features = random.standard_normal((8, 64), np.float32)
    print(collage.load(bundle)(features=features))


if __name__ == "__main__":
    place = Path(sys.argv[1] if len(sys.argv) > 1 else "out/quickstart")
    place.mkdir(parents=True, exist_ok=True)
    main(place)
