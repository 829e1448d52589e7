"""The stage ``import``: a network through PyTorch's exporter and our importer, and what it means.

What was imported is evaluated in numpy, operator by operator, beside eager PyTorch: an importer
that gets an operator wrong is found here, without a device or a compiler.
"""

from __future__ import annotations

import signal
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from benchmarks.gpu.networks import build, export
from benchmarks.timing.statistics import rms_relative_difference
from benchmarks.zoo.families import NETWORKS
from collage.backends.contract.errors import CollageError, telling_line

RIGHT = 1e-4
"""Root mean square error against float64: float32 stays far below in most networks, and another
function does not."""

AS_EXACT = 3.0
"""In networks that amplify what is rounded, our error as a multiple of eager PyTorch's."""


class Late(Exception):
    """A part of the stage took longer than it was given."""


@contextmanager
def within(limit_sec: float) -> Iterator[None]:
    """Raise :class:`Late` in the main thread when the time is up, between two Python operations."""

    def stop(*_: object) -> None:
        raise Late

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, limit_sec)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)


def import_network(network: str, form: str, check_sec: float, seed: int = 0) -> dict[str, Any]:
    """Import a network, and evaluate what came out beside PyTorch.

    Parameters
    ----------
    network : str
        Of the zoo.
    form : str
        ``torch`` (an exported program) or ``onnx``.
    check_sec : float
        For the evaluation in numpy; 0 for none.

    Returns
    -------
    dict
        ``export_sec``, ``import_sec``, ``operators`` (how often each), and either ``failure`` with
        ``failed_in`` (``export``: PyTorch's own exporter refused) or ``difference`` (its root mean
        square, against float64) and ``eager`` (PyTorch's own in float32), or ``unchecked``.
    """
    chosen = NETWORKS[network]
    if chosen.missing:
        return {"skipped": f"not installed: {', '.join(chosen.missing)}"}
    return import_module(build(network, seed), chosen.draw(seed), form, check_sec)


def import_module(
    module: torch.nn.Module, inputs: tuple[torch.Tensor, ...], form: str, check_sec: float
) -> dict[str, Any]:
    """The same of a module that is in no list.

    Parameters
    ----------
    module : nn.Module
        In inference mode; made float64 in place.
    inputs : tuple of Tensor
    form, check_sec
        As for :func:`import_network`.

    Returns
    -------
    dict
        As of :func:`import_network`.
    """
    answer: dict[str, Any] = {"parameters": sum(p.numel() for p in module.parameters())}
    begin = time.perf_counter()
    try:
        source = exported(module, inputs, form)
    except Exception as err:  # noqa: BLE001 - PyTorch's exporters raise anything; it is the answer
        return {**answer, "failed_in": "export", "failure": f"{type(err).__name__}: {_said(err)}"}
    answer["export_sec"] = time.perf_counter() - begin
    begin = time.perf_counter()
    try:
        imported = _import(source)
    except CollageError as err:
        return {**answer, "failed_in": "import", "failure": str(err)}
    except Exception as err:  # noqa: BLE001 - no typed error: a bug of ours, and the answer
        reason = f"{type(err).__name__}: {_said(err)}"
        return {**answer, "failed_in": "normalize", "failure": reason}
    answer["import_sec"] = time.perf_counter() - begin
    answer["operators"] = dict(
        Counter(imported.graph.op_name(i) for i in range(len(imported.graph)))
    )
    return {**answer, **_checked(imported, module, inputs, check_sec)}


def exported(module: torch.nn.Module, inputs: tuple[torch.Tensor, ...], form: str) -> Any:
    """The module as an exported program, or as an ONNX model."""
    program = export(module, inputs)
    if form == "torch":
        return program
    with torch.no_grad():
        return torch.onnx.export(program, (), dynamo=True, verbose=False).model_proto


def _import(source: Any) -> Any:
    from collage.backends.devices import CPU
    from collage.pipeline.imported import import_model

    return import_model(source, CPU)


def _checked(
    imported: Any, module: torch.nn.Module, inputs: tuple[torch.Tensor, ...], limit_sec: float
) -> dict[str, Any]:
    if not limit_sec:
        return {"unchecked": "not asked for"}
    if imported.course is not None:
        return {"unchecked": "it has several parts, of which data choose"}
    from collage.cost.reference import evaluate

    begin = time.perf_counter()
    try:
        with within(limit_sec):
            found = evaluate(imported.mod, [x.numpy() for x in inputs])
    except Late:
        return {"unchecked": f"numpy took more than {limit_sec:g} s"}
    except Exception as err:  # noqa: BLE001 - said in the table
        return {"unchecked": f"{type(err).__name__}: {_said(err)}"}
    check_sec = time.perf_counter() - begin
    found = _rows_that_there_are(imported.rows, found)
    return {**beside_eager(found, module, inputs), "check_sec": check_sec}


def _rows_that_there_are(rows: Sequence[Any], results: Sequence[Any]) -> list[Any]:
    """Results without the rows that data did not choose, and without the numbers of them."""
    found = dict(enumerate(results))
    for one in rows:
        count = int(found.pop(one.count).item())
        for index, axis in one.outputs:
            found[index] = found[index].take(range(count), axis)
    return [*found.values()]


def beside_eager(
    found: Sequence[Any], module: torch.nn.Module, inputs: tuple[torch.Tensor, ...]
) -> dict[str, float]:
    """How far results, and eager PyTorch's, are from PyTorch in float64.

    Parameters
    ----------
    found : sequence of array
        Its outputs as somebody else computed them.
    module : nn.Module
        Made float64 in place.
    inputs : tuple of Tensor

    Returns
    -------
    dict
        ``difference`` and ``eager``, as :func:`import_network` gives them.
    """
    eager = _outputs(module, inputs)
    if [x.shape for x in found] != [x.shape for x in eager]:
        return {"difference": float("inf"), "eager": 0.0}
    try:
        wide = tuple(x.double() if x.is_floating_point() else x for x in inputs)
        wanted = _outputs(module.double(), wide)
    except RuntimeError:
        wanted = eager  # The module insists on float32 somewhere.
    if rms_relative_difference(eager, wanted) == float("inf"):
        wanted = eager  # What float32 ends at, a mask's least number among it, is no end here.
    return {
        "difference": rms_relative_difference(found, wanted),
        "eager": rms_relative_difference(eager, wanted),
    }


def is_right(row: dict[str, Any]) -> bool:
    """Whether an evaluated import computes the network."""
    return bool(row["difference"] <= max(RIGHT, AS_EXACT * row["eager"]))


def _outputs(module: torch.nn.Module, inputs: tuple[torch.Tensor, ...]) -> list[Any]:
    with torch.no_grad():
        leaves = tree_leaves(module(*inputs))
    return [leaf.numpy() for leaf in leaves if isinstance(leaf, torch.Tensor)]


def _said(err: Exception) -> str:
    return telling_line(err)[:300]
