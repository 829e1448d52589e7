"""The same cases through other engines, to say what they take and this project does not."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np

from benchmarks.conformance.cases import Array, Case, cases
from benchmarks.conformance.runs import PEERS
from benchmarks.conformance.trial import difference
from benchmarks.zoo.results import Row
from collage.backends.contract.errors import telling_line


def attempt_peer(name: str, engine: str) -> dict[str, Any]:
    """What another engine makes of a case.

    Parameters
    ----------
    name : str
        The case's.
    engine : str
        One of :data:`~benchmarks.conformance.runs.PEERS`.

    Returns
    -------
    dict
        ``outcome``: ``passed``, ``refused`` or ``wrong``; ``reason`` but for the first.
    """
    case = cases()[name]
    facts = {"operator": case.operator, "float32": case.has_float32}
    if not all(isinstance(x, np.ndarray | np.generic) for x in [*case.inputs, *case.outputs]):
        return {**facts, "outcome": "refused", "reason": "what goes in or out is no tensor"}
    try:
        answers = _ENGINES[engine](case)
    except Exception as err:  # noqa: BLE001 - every engine refuses in a way of its own
        return {**facts, "outcome": "refused", "reason": telling_line(err)}
    wrong = _difference(answers, case)
    if wrong:
        return {**facts, "outcome": "wrong", "reason": wrong}
    return {**facts, "outcome": "passed"}


def _difference(answers: list[Array], case: Case) -> str:
    """As :func:`difference` has it; texts are the same, or they are not."""
    if not any(np.asarray(one).dtype == object for one in case.outputs):
        return difference(answers, case)
    same = all(np.array_equal(*pair) for pair in zip(answers, case.outputs, strict=True))
    return "" if same else "other texts"


def _onnxruntime(case: Case) -> list[Array]:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    model = case.model.SerializeToString()
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    names = [one.name for one in session.get_inputs()]
    found: list[Array] = session.run(None, dict(zip(names, case.inputs, strict=True)))
    return found


def _openvino(case: Case) -> list[Array]:
    import openvino

    core = openvino.Core()
    model = core.read_model(case.model.SerializeToString())
    exact = {"INFERENCE_PRECISION_HINT": "f32"}
    compiled = core.compile_model(model, "CPU", exact)
    found = compiled([np.asarray(x) for x in case.inputs])
    return [np.asarray(found[one]) for one in compiled.outputs]


_ENGINES = {"onnxruntime itself": _onnxruntime, "openvino itself": _openvino}


def lacking(rows: Sequence[Row]) -> list[str]:
    """The page's section of what other engines take, as lines of Markdown; empty without them.

    Parameters
    ----------
    rows : sequence
        Of all choices, ours and theirs.
    """
    ours = {row["network"]: row for row in rows if row["variant"] == "tvm"}
    theirs = [row for row in rows if row["variant"] in PEERS and row["network"] in ours]
    if not theirs:
        return []
    lines = [
        *("## What other engines take", ""),
        "The same models given to the engines themselves. A case that an engine answers in "
        "another element type than the standard's is wrong there.",
        *("", "| engine | cases | passed | of these not passed here | passed here only |"),
        "| --- | ---: | ---: | ---: | ---: |",
    ]
    missing: dict[str, dict[str, int]] = defaultdict(dict)
    for engine in PEERS:
        its = [row for row in theirs if row["variant"] == engine]
        passed = {row["network"] for row in its if row["outcome"] == "passed"}
        here = {row["network"] for row in its if ours[row["network"]]["outcome"] == "passed"}
        lines.append(
            f"| {engine} | {len(its)} | {len(passed)} | {len(passed - here)} | "
            f"{len(here - passed)} |"
        )
        for name in passed - here:
            counts = missing[ours[name]["operator"]]
            counts[engine] = counts.get(engine, 0) + 1
    lines += ["", "Cases that they pass and that are refused here, by operator:", ""]
    lines += ["| operator | " + " | ".join(PEERS) + " |", "| --- |" + " ---: |" * len(PEERS)]
    for operator, counts in sorted(missing.items()):
        lines.append(f"| {operator} | " + " | ".join(str(counts.get(e, "")) for e in PEERS) + " |")
    return [*lines, ""]
