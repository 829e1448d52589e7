"""One network: made, run by PyTorch, and by us; what comes out beside PyTorch in float64."""

from __future__ import annotations

import resource
import tempfile
import time
from typing import Any

import torch

from benchmarks.zoo.importing import beside_eager, import_module, is_right
from benchmarks.zoo.unseen import sources
from benchmarks.zoo.unseen.source import Made
from collage.backends.contract.errors import CollageError, UserError, telling_line

VARIANTS = {"import": (), "tvm": ("llvm",), "onednn": ("llvm", "onednn")}
"""What is done with a network: evaluated in numpy once imported, or compiled for these and run."""

NOT_MADE, UNJUDGED = "left out", "not judged"

_CHAOTIC = 1e-2
"""Eager PyTorch's own error in float32, from which on a comparison in float32 says nothing."""


def attempt(
    name: str, variant: str, check_sec: float, search_sec: float, memory_gib: float, seed: int = 0
) -> dict[str, Any]:
    """What becomes of a network.

    Parameters
    ----------
    name : str
        As :func:`sources.names` gives them.
    variant : str
        One of :data:`VARIANTS`.
    check_sec : float
        For an evaluation in numpy.
    search_sec : float
        For a search; 0 compiles what the variant's backend takes, with no search.
    memory_gib : float
        For this process from now on; 0 for no limit.
    seed : int

    Returns
    -------
    dict
        ``outcome``: ``passed``, ``refused``, ``wrong``, ``crashed``, ``not judged``, or ``left
        out`` where PyTorch itself has no answer; ``reason`` but for the first; ``built``,
        ``parameters``, ``difference``, ``eager``, ``seconds``.
    """
    if memory_gib:
        limit = int(memory_gib * 2**30)
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    torch.set_num_threads(1)
    try:
        made = sources.make(name, seed)
        with torch.no_grad():
            made.module(*made.inputs)
    except Exception as err:  # noqa: BLE001 - packages raise anything
        return {"outcome": NOT_MADE, "reason": _line(err)}
    begin = time.perf_counter()
    if variant == "import":
        answer = _imported(made, check_sec)
    else:
        answer = _run(made, VARIANTS[variant], search_sec)
    counted = sum(p.numel() for p in made.module.parameters())
    facts = {"built": made.built, "parameters": counted, "seconds": time.perf_counter() - begin}
    return {**facts, **answer}


def _imported(made: Made, check_sec: float) -> dict[str, Any]:
    answer = import_module(made.module, made.inputs, "torch", check_sec)
    if answer.get("eager", 0.0) > _CHAOTIC:
        # The module is in float64 by now.
        inputs = tuple(x.double() if x.is_floating_point() else x for x in made.inputs)
        answer |= import_module(made.module, inputs, "torch", check_sec)
    operators = sum(answer.pop("operators", {}).values())
    if "failure" in answer:
        crashed = answer["failed_in"] == "normalize"
        return {"outcome": "crashed" if crashed else "refused", "reason": answer["failure"]}
    found = {"operators": operators, "import_sec": answer["export_sec"] + answer["import_sec"]}
    if "unchecked" in answer:
        return {**found, "outcome": UNJUDGED, "reason": answer["unchecked"]}
    return {**found, **_judged(answer)}


def _run(made: Made, targets: tuple[str, ...], search_sec: float) -> dict[str, Any]:
    import collage
    from collage.cost.models.roofline import DeviceSpec, RooflineCostModel

    how: dict[str, Any] = {"time_budget_sec": search_sec}
    if not search_sec:
        # There are data sheets of GPUs; for a processor this stands for one of a few cores.
        spec = DeviceSpec("a processor", 4e11, 2e11, 2e11, 2e10)
        of = {"llvm": "tvm"}.get(targets[-1], targets[-1])
        how = {"strategy": f"single:{of}", "cost_model": RooflineCostModel(spec)}
    try:
        result = collage.optimize(made.module, list(targets), example_inputs=made.inputs, **how)
        with tempfile.TemporaryDirectory(prefix="collage-unseen-") as folder:
            bundle = collage.load(result.export(folder))
            found = torch.utils._pytree.tree_leaves(bundle(*(x.numpy() for x in made.inputs)))
    except UserError as err:
        return {"outcome": "refused", "reason": str(err)}
    except CollageError as err:
        return {"outcome": "crashed", "reason": f"{type(err).__name__}: {err}"}
    except Exception as err:  # noqa: BLE001 - no typed error: what this benchmark looks for
        return {"outcome": "crashed", "reason": f"{type(err).__name__}: {_line(err)}"}
    return _judged(dict(beside_eager(found, made.module, made.inputs)))


def _judged(figures: dict[str, Any]) -> dict[str, Any]:
    kept = {name: figures[name] for name in ("difference", "eager")}
    if kept["eager"] > _CHAOTIC:
        reason = f"eager PyTorch is off by {kept['eager']:.1e} of its results in float32"
        return {**kept, "outcome": UNJUDGED, "reason": reason}
    if is_right(figures):
        return {**kept, "outcome": "passed"}
    off = f"off by {kept['difference']:.1e} where eager PyTorch is by {kept['eager']:.1e}"
    return {**kept, "outcome": "wrong", "reason": off}


def _line(error: Exception) -> str:
    return f"{type(error).__name__}: {telling_line(error)[:300]}"
