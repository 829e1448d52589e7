"""One network the whole way: imported, optimized, exported, loaded, run beside onnxruntime."""

from __future__ import annotations

import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import onnx
import onnxruntime

import collage
from benchmarks.public_models.inputs import Array
from benchmarks.public_models.model import PublicModel
from benchmarks.public_models.models import MODELS
from benchmarks.public_models.wheels import opened
from collage.backends.contract.errors import CollageError, UserError, telling_line
from collage.backends.devices.cpu_flags import sums_bytes_in_32_bits
from collage.cost.models import DeviceSpec, RooflineCostModel

SEEDS = (11, 12)
TOLERANCE = 1e-3
"""Of the largest value of an output, in float32."""

QUANTIZED = 5e-2
"""Where values are quantized as the network runs: one rounded the other way moves by a whole step
of 1/255, and recurrent layers hand it on."""

_DYNAMIC = ("DynamicQuantizeLinear", "DynamicQuantizeLSTM")

_NUDGE = 1e-6
"""Some networks amplify rounding: what onnxruntime's own answer moves by when inputs move by so
little is no fault of ours either, nor twice that. Where the inputs are rounded to steps first, so
are the weights moved: which way a value is rounded depends on the order of the sum that it is."""

_FACTORS = (1 + _NUDGE, 1 - _NUDGE)

_ANY_CPU = RooflineCostModel(DeviceSpec("a processor", 1e11, 1e11, 1e11, bytes_per_sec=1e10))
"""Of the quick pass, which asks whether results are right, not how fast."""

_CALLS = 15


def attempt(name: str, wheel: Path, budget_sec: float) -> dict[str, Any]:
    """What becomes of a network.

    Parameters
    ----------
    name : str
        In :data:`~benchmarks.public_models.models.MODELS`.
    wheel : Path
        Where it is in.
    budget_sec : float
        For the search; 0 for none: plain TVM, nothing is measured.

    Returns
    -------
    dict
        ``outcome``: ``right``, ``refused``, ``wrong`` or ``crashed``; ``reason`` but for the first;
        ``nodes``, ``operators`` (how many), ``import_sec`` and others as far as it came.
    """
    model = MODELS[name]
    proto = opened(model, wheel)
    row: dict[str, Any] = {"nodes": len(proto.graph.node), "operators": _most_frequent(proto)}
    begin = time.perf_counter()
    try:
        row.update(_attempt(model, proto, budget_sec))
    except UserError as err:
        row.update(outcome="refused", reason=str(err))
    except CollageError as err:
        row.update(outcome="crashed", reason=str(err))
    except Exception as err:  # noqa: BLE001 - no typed error: what this benchmark looks for
        row.update(outcome="crashed", reason=f"{type(err).__name__}: {telling_line(err)}")
    return {**row, "wall_sec": time.perf_counter() - begin}


def _attempt(model: PublicModel, proto: onnx.ModelProto, budget_sec: float) -> dict[str, Any]:
    session, exact = _session(proto), _session(proto, optimized=False)
    rounds = any(node.op_type == "QuantizeLinear" for node in _nodes(proto.graph))
    others = [_session(_with_nudged_weights(proto, f), optimized=False) for f in _FACTORS if rounds]
    begin = time.perf_counter()
    if budget_sec:
        result = collage.optimize(
            *(proto, ["llvm", "onednn"]), shapes=model.shapes, time_budget_sec=budget_sec
        )
    else:
        result = collage.optimize(
            *(proto, ["llvm"]), shapes=model.shapes, strategy="single:tvm", cost_model=_ANY_CPU
        )
    row: dict[str, Any] = {
        "optimize_sec": time.perf_counter() - begin,
        "chosen": dict(Counter(c.target.backend for c in result.partitioning.candidates)),
    }
    names = [fed.name for fed in model.inputs]
    wanted_names = [output.name for output in session.get_outputs()]
    with tempfile.TemporaryDirectory(prefix="collage-public-") as folder:
        bundle = collage.load(result.export(folder))
        worst, own, reason = 0.0, 0.0, ""
        for seed in SEEDS:
            feeds = drawn(model, seed)
            wanted = exact.run(wanted_names, feeds)
            answers = [exact.run(wanted_names, _nudged(feeds, factor)) for factor in _FACTORS]
            answers += [other.run(wanted_names, feeds) for other in others]
            own = max(own, *(difference(answer, wanted)[0] for answer in answers))
            ours = bundle(*(feeds[info.name] for info in bundle.inputs))
            found, said = difference(ours if isinstance(ours, list) else [ours], wanted)
            worst, reason = max(worst, found), reason or said
        quantized = any(node.op_type in _DYNAMIC for node in _nodes(proto.graph))
        if not reason and worst > max(QUANTIZED if quantized else TOLERANCE, 2 * own):
            reason = f"off by {worst:.2g} of the largest value"
        given = [feeds[info.name] for info in bundle.inputs]
        row["our_sec"], row["peer_sec"] = _times(
            lambda: bundle(*given), lambda: session.run(wanted_names, feeds)
        )
    row.update(difference=worst, own=own, inputs=names, outcome="wrong" if reason else "right")
    return {**row, "reason": reason} if reason else row


def _session(proto: onnx.ModelProto, *, optimized: bool = True) -> onnxruntime.InferenceSession:
    """onnxruntime on a file; not optimized, it computes what the file says, operator by operator:
    optimized, a network in 8-bit integers was seen to be off by 3 to 14 % of its largest value."""
    options = onnxruntime.SessionOptions()
    if not optimized:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        # Without VNNI it adds pairs of products of bytes in 16 bits.
        if not sums_bytes_in_32_bits():
            options.add_session_config_entry("session.x64quantprecision", "1")
    return onnxruntime.InferenceSession(proto.SerializeToString(), options)


def drawn(model: PublicModel, seed: int) -> dict[str, Array]:
    """Its inputs by name, the same for the same seed."""
    random = np.random.default_rng(seed)
    return {fed.name: fed.draw(random) for fed in model.inputs}


def _nudged(feeds: dict[str, Array], factor: float) -> dict[str, Array]:
    """The inputs, those that are no whole numbers times a factor: they name letters, in float32
    too."""
    return {
        name: array
        if array.dtype.kind != "f" or np.array_equal(array, np.round(array))
        else np.asarray(array * factor, array.dtype)
        for name, array in feeds.items()
    }


def _with_nudged_weights(proto: onnx.ModelProto, factor: float) -> onnx.ModelProto:
    """The network with all of its weights and scales times a factor."""
    copy = onnx.ModelProto()
    copy.CopyFrom(proto)
    for tensor in copy.graph.initializer:
        if tensor.data_type == onnx.TensorProto.FLOAT:
            moved = np.asarray(onnx.numpy_helper.to_array(tensor) * factor, "float32")
            tensor.CopyFrom(onnx.numpy_helper.from_array(moved, tensor.name))
    return copy


def difference(ours: Sequence[Any], wanted: Sequence[Array]) -> tuple[float, str]:
    """The largest relative difference, and what is wrong beyond numbers, in words.

    Of whole numbers and truth values, the share that differs.
    """
    if len(ours) != len(wanted):
        return 0.0, f"{len(ours)} outputs instead of {len(wanted)}"
    worst = 0.0
    for mine, theirs in zip(map(np.asarray, ours), map(np.asarray, wanted), strict=True):
        if (mine.shape, mine.dtype) != (theirs.shape, theirs.dtype):
            return 0.0, f"{mine.dtype}{mine.shape} instead of {theirs.dtype}{theirs.shape}"
        if mine.dtype.kind in "biu":
            worst = max(worst, float(np.mean(mine != theirs)))
            continue
        if not np.array_equal(np.isfinite(mine), np.isfinite(theirs)):
            return 0.0, "values that are not finite where onnxruntime's are, or the other way"
        finite = np.isfinite(theirs)
        largest = float(np.abs(theirs[finite]).max(initial=1e-30))
        worst = max(worst, float(np.abs(mine - theirs)[finite].max(initial=0.0)) / largest)
    return worst, ""


def _times(ours: Callable[[], Any], peer: Callable[[], Any]) -> tuple[float, float]:
    """Median seconds of a call of each, in turns."""
    spent: tuple[list[float], list[float]] = ([], [])
    for _ in range(_CALLS):
        for call, seconds in zip((ours, peer), spent, strict=True):
            begin = time.perf_counter()
            call()
            seconds.append(time.perf_counter() - begin)
    return median(spent[0]), median(spent[1])


def _most_frequent(proto: onnx.ModelProto) -> dict[str, int]:
    return dict(Counter(node.op_type for node in _nodes(proto.graph)).most_common())


def _nodes(graph: onnx.GraphProto) -> list[onnx.NodeProto]:
    """All, those of branches and bodies included."""
    found = []
    for node in graph.node:
        found.append(node)
        for attribute in node.attribute:
            if attribute.HasField("g"):
                found += _nodes(attribute.g)
    return found
