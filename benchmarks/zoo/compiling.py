"""The stage ``compile``: a search on estimated costs, and the library that comes out linked."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path
from typing import Any

from benchmarks.gpu.networks import build
from benchmarks.zoo.families import NETWORKS
from benchmarks.zoo.importing import exported
from collage.backends.contract.errors import CollageError

TARGETS: dict[str, tuple[Any, ...]] = {
    "llvm": ("llvm", "onednn", "openblas"),
    "sm_80": ({"kind": "cuda", "arch": "sm_80"}, "cutlass", "cublas", "cudnn"),
    "sm_90a": ({"kind": "cuda", "arch": "sm_90a"}, "cutlass", "cublas", "cudnn"),
}


def compile_network(
    network: str, architecture: str, dtype: str, out: str, seed: int = 0
) -> dict[str, Any]:
    """Search on estimates, link, export.

    Parameters
    ----------
    network : str
        Of the zoo.
    architecture : str
        One of :data:`TARGETS`.
    dtype : str
        Floats' type, for weights and inputs alike.
    out : str
        An empty folder for the bundle.

    Returns
    -------
    dict
        ``seconds``, ``partitions`` by backend, ``bytes`` of the library; or ``failure``.
    """
    import torch

    import collage
    from collage.cost.models.roofline import DeviceSpec, RooflineCostModel

    # There are data sheets of GPUs; for a processor this stands for one of a few cores.
    spec = DeviceSpec("a processor", 4e11, 2e11, 2e11, 2e10) if architecture == "llvm" else None

    chosen = NETWORKS[network]
    if chosen.missing:
        return {"skipped": f"not installed: {', '.join(chosen.missing)}"}
    wanted = getattr(torch, dtype)
    module = build(network, seed).to(wanted)
    inputs = tuple(x.to(wanted) if x.is_floating_point() else x for x in chosen.draw(seed))
    program = exported(module, inputs, "torch")
    begin = time.perf_counter()
    try:
        result = collage.optimize(
            program, TARGETS[architecture], cost_model=RooflineCostModel(spec), seed=seed
        )
        folder = result.export(Path(out))
    except CollageError as err:
        return {"failure": f"{type(err).__name__}: {err}"}
    backends = Counter(c.backend for c in result.partitioning.candidates if not c.inline)
    return {
        "seconds": time.perf_counter() - begin,
        "partitions": dict(backends),
        "bytes": (folder / "model.so").stat().st_size,
    }
