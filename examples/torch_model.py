"""A PyTorch module, optimized in two ways: as a bundle to deploy, and behind torch.compile."""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from torch import nn

import collage


class Classifier(nn.Module):
    """Scores and an embedding for a batch of features; weights are random."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(64, 128), nn.GELU(), nn.LayerNorm(128))
        self.head = nn.Linear(128, 10)

    def forward(self, features: torch.Tensor) -> dict[str, torch.Tensor]:
        embedding = self.body(features)
        return {"scores": self.head(embedding).softmax(-1), "embedding": embedding}


def main(folder: Path) -> None:
    torch.manual_seed(0)
    model, features = Classifier().eval(), torch.randn(8, 64)
    targets, log = ["llvm", "openblas"], folder / "classifier.jsonl"

    result = collage.optimize(model, targets, example_inputs=(features,), log=log)
    bundle = collage.load(result.export(folder / "bundle"))
    print(result)

    options = {"targets": targets, "log": log}
    compiled = torch.compile(model, backend="collage", options=options)
    with torch.inference_mode():
        want = model(features)
        for how, run in (("bundle", bundle), ("torch.compile", compiled)):
            scores = run(features)["scores"]
            print(f"{how}: largest difference {(scores - want['scores']).abs().max():.1e}")


if __name__ == "__main__":
    place = Path(sys.argv[1] if len(sys.argv) > 1 else "out/torch_model")
    place.mkdir(parents=True, exist_ok=True)
    main(place)
