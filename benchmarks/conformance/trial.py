"""One case on one choice of backends: from the model to the loaded bundle's answers."""

from __future__ import annotations

import tempfile
from typing import Any

import ml_dtypes
import numpy as np

import collage
from benchmarks.conformance.cases import Array, Case, cases
from benchmarks.conformance.runs import ON_A_GPU
from collage.backends.contract.errors import CollageError, UserError, telling_line
from collage.cost.models import RooflineCostModel
from collage.pipeline.covers import seeds_of
from collage.pipeline.imported import import_model
from collage.targets import resolve_targets

EVERYTHING = ("onednn", "openblas", "openvino", "onnxruntime")

LIBRARIES = ("cutlass", "cublas", "cudnn")


def attempt(name: str, backends: str) -> dict[str, Any]:
    """What becomes of a case.

    Parameters
    ----------
    name : str
        The case's.
    backends : str
        ``tvm``, the name of one beside it, or ``all``; on a GPU, one of ``runs.ON_A_GPU``.

    Returns
    -------
    dict
        ``outcome``: ``passed``, ``refused``, ``wrong`` or ``crashed``; ``reason`` but for the
        first; ``taken``, how many partitions the backends have that were asked for.
    """
    case = cases()[name]
    facts = {"operator": case.operator, "float32": case.has_float32}
    try:
        return {**facts, **_attempt(case, backends)}
    except UserError as err:
        return {**facts, "outcome": "refused", "reason": str(err)}
    except CollageError as err:
        return {**facts, "outcome": "crashed", "reason": str(err)}
    except Exception as err:  # noqa: BLE001 - no typed error: what this benchmark looks for
        reason = f"{type(err).__name__}: {telling_line(err)}"
        return {**facts, "outcome": "crashed", "reason": reason}


def _attempt(case: Case, backends: str) -> dict[str, Any]:
    targets, strategy = _asked_for(backends)
    if len(targets) > 1 and not _takes_part(case, targets, strategy):
        return {"outcome": "passed", "taken": 0, "reason": "nothing for it to take"}
    # Nothing is measured: what is asked here is whether results are right, not how fast.
    estimates = RooflineCostModel()
    result = collage.optimize(case.model, targets, strategy=strategy, cost_model=estimates)
    taken = sum(c.target.backend != "tvm" for c in result.partitioning.candidates)
    with tempfile.TemporaryDirectory(prefix="collage-conformance-") as folder:
        bundle = collage.load(result.export(folder))
        found = bundle(*case.inputs)
    answers = found if isinstance(found, list) else [found]
    wrong = difference(answers, case)
    if wrong:
        return {"outcome": "wrong", "taken": taken, "reason": wrong}
    return {"outcome": "passed", "taken": taken}


def _asked_for(backends: str) -> tuple[list[str], str]:
    """Targets and strategy."""
    if backends in ON_A_GPU:
        alone = backends == ON_A_GPU[0]
        return (["cuda"], "single:tvm") if alone else (["cuda", *LIBRARIES], "greedy")
    if backends == "all":
        return ["llvm", *EVERYTHING], "greedy"
    others = [] if backends == "tvm" else [backends]
    return ["llvm", *others], f"single:{backends}"


def _takes_part(case: Case, targets: list[str], strategy: str) -> bool:
    """Whether another backend than TVM has anything; without, the program is TVM's."""
    resolved = resolve_targets(targets)
    imported = import_model(case.model, resolved.device)
    contenders = seeds_of(imported.graph, resolved, strategy)
    return any(
        candidate.target.backend != "tvm"
        for contender in contenders
        for candidate in contender.partitioning.candidates
    )


def difference(answers: list[Any], case: Case) -> str:
    """In what the answers differ from the case's, in words; empty where they do not."""
    # Of a sequence each tensor is an output here.
    expected = [x for one in case.outputs for x in (one if isinstance(one, list) else [one])]
    if len(answers) != len(expected):
        return f"{len(answers)} outputs instead of {len(expected)}"
    for answer, wanted in zip(answers, map(np.asarray, expected), strict=True):
        ours = np.asarray(answer)
        if (ours.shape, ours.dtype) != (wanted.shape, wanted.dtype):
            return f"{ours.dtype}{list(ours.shape)} instead of {wanted.dtype}{list(wanted.shape)}"
        if not _close(ours, wanted, case):
            worst = np.nanmax(np.abs(_wide(ours) - _wide(wanted)))
            largest = np.nanmax(np.abs(_wide(wanted)))
            return f"off by {worst:.2g} where values reach {largest:.2g}"
    return ""


def _close(ours: Array, wanted: Array, case: Case) -> bool:
    if ours.dtype.kind in "biu":
        return bool(np.array_equal(ours, wanted))
    step = float(ml_dtypes.finfo(wanted.dtype).eps)  # type: ignore[no-untyped-call]
    rtol, atol = max(case.rtol, 4 * step), max(case.atol, 1e-5, step)
    return np.allclose(_wide(ours), _wide(wanted), rtol=rtol, atol=atol, equal_nan=True)


def _wide(x: Array) -> Array:
    return x.astype("float64")
