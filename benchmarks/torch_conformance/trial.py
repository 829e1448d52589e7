"""One sample: exported by PyTorch, optimized without measuring, bundled, loaded, run, compared."""

from __future__ import annotations

import tempfile
from typing import Any

import ml_dtypes
import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils import _pytree as pytree

import collage
from benchmarks.torch_conformance.factors import in_what_is_unique
from benchmarks.torch_conformance.samples import Case, Sample, sample
from collage.backends.contract.errors import CollageError, UserError, telling_line
from collage.cost.models import RooflineCostModel

_TOLERANCES = {"float64": (1e-6, 1e-7), "float32": (1e-4, 1e-5), "float16": (4e-3, 1e-3)}
_COARSE = (3e-2, 1e-2)
_WORSE_THAN_EAGER = 4.0
"""Times eager PyTorch's own error, where that is larger than the tolerance."""

Array = NDArray[Any]


class _LeftOutError(Exception):
    """Nothing that could be compared; the message says why."""


def attempt(name: str, target: str = "llvm") -> dict[str, Any]:
    """What becomes of a case.

    Parameters
    ----------
    name : str
        As :func:`samples.names` gives them.
    target : str
        What TVM compiles for, and where it runs.

    Returns
    -------
    dict
        ``operator``, ``dtype``; ``outcome``: ``passed``, ``refused``, ``wrong``, ``crashed``,
        ``left out`` or ``none`` where there is no such sample; ``reason`` but for the first.
    """
    case = Case.of(name)
    facts = {"operator": case.operator, "dtype": case.dtype}
    try:
        call = sample(case)
        if call is None:
            return {**facts, "outcome": "none", "reason": "fewer samples"}
        expected = _expected(call)
        program = _exported(call)
    except _LeftOutError as err:
        return {**facts, "outcome": "left out", "reason": str(err)}
    except Exception as err:  # noqa: BLE001 - PyTorch's own samples fail in any way
        return {**facts, "outcome": "left out", "reason": f"PyTorch: {_line(err)}"}
    try:
        answers = in_what_is_unique(case.operator, _answers(program, call, target))
        wrong = difference(answers, in_what_is_unique(case.operator, expected), call)
    except UserError as err:
        return {**facts, "outcome": "refused", "reason": str(err)}
    except CollageError as err:
        return {**facts, "outcome": "crashed", "reason": str(err)}
    except Exception as err:  # noqa: BLE001 - no typed error: what this benchmark looks for
        return {**facts, "outcome": "crashed", "reason": f"{type(err).__name__}: {_line(err)}"}
    if wrong:
        return {**facts, "outcome": "wrong", "reason": wrong}
    return {**facts, "outcome": "passed"}


def _line(error: Exception) -> str:
    return telling_line(error)[:300]


def _expected(call: Sample) -> list[torch.Tensor]:
    """What eager PyTorch gives, of a sample whose results can be compared with anything."""
    if any(x.layout != torch.strided or x.is_nested for x in call.inputs):
        raise _LeftOutError("sparse or nested tensors")
    if not call.inputs:
        raise _LeftOutError("takes no tensor")
    first, second = (_results(call, _copies(call.inputs)) for _ in range(2))
    if any(x.is_complex() for x in [*call.inputs, *first]):
        raise _LeftOutError("complex inputs or outputs")
    if any(x.layout != torch.strided for x in first):
        raise _LeftOutError("sparse or nested tensors")
    for one, two in zip(first, second, strict=True):
        if one.shape != two.shape or not np.array_equal(_wide(one), _wide(two), equal_nan=True):
            raise _LeftOutError("gives another result at each call")
    return first


def _copies(inputs: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
    return tuple(x.clone(memory_format=torch.contiguous_format) for x in inputs)


def _results(call: Sample, given: tuple[torch.Tensor, ...]) -> list[torch.Tensor]:
    kept = _copies(given)
    with torch.no_grad():
        leaves = pytree.tree_leaves(call(*given))
    if not leaves or not all(isinstance(x, torch.Tensor) for x in leaves):
        raise _LeftOutError("gives something else than tensors")
    for before, after in zip(kept, given, strict=True):
        if before.shape != after.shape or not torch.equal(before.nan_to_num(), after.nan_to_num()):
            raise _LeftOutError("writes into its inputs")
    return [x.resolve_neg() for x in leaves]


def _exported(call: Sample) -> torch.export.ExportedProgram:
    try:
        with torch.no_grad():
            program = torch.export.export(call.eval(), _copies(call.inputs), strict=False)
    except Exception as err:
        raise _LeftOutError(f"torch.export refuses it: {type(err).__name__}") from err
    if any(map(_draws, program.graph.nodes)):
        raise _LeftOutError("draws random numbers")
    return program


def _draws(node: torch.fx.Node) -> bool:
    """Whether a node draws random numbers; the samples seed the generator before each call."""
    if torch.Tag.nondeterministic_seeded not in getattr(node.target, "tags", ()):
        return False
    names = [argument.name for argument in node.target._schema.arguments]
    given = {**dict(zip(names, node.args, strict=False)), **node.kwargs}
    # What drops out does so in training only.
    return given.get("train", given.get("training", True)) is not False


def _answers(program: torch.export.ExportedProgram, call: Sample, target: str) -> list[Any]:
    # Nothing is measured: what is asked here is whether results are right, not how fast.
    estimates = RooflineCostModel()
    result = collage.optimize(program, [target], strategy="single:tvm", cost_model=estimates)
    with tempfile.TemporaryDirectory(prefix="collage-torch-conformance-") as folder:
        bundle = collage.load(result.export(folder))
        found = bundle(*(_as_array(x) for x in _copies(call.inputs)))
    answers: list[Any] = pytree.tree_leaves(found)
    return answers


def _as_array(x: torch.Tensor) -> Array:
    if x.dtype == torch.bfloat16:
        return _plain(x.view(torch.int16)).view(ml_dtypes.bfloat16)
    return _plain(x)


def _plain(x: torch.Tensor) -> Array:
    found: Array = x.numpy()
    return found


def difference(answers: list[Any], expected: list[torch.Tensor], call: Sample) -> str:
    """In what the answers differ from eager PyTorch's, in words; empty where they do not."""
    if len(answers) != len(expected):
        return f"{len(answers)} outputs instead of {len(expected)}"
    for place, (answer, wanted) in enumerate(zip(answers, expected, strict=True)):
        ours, kind = np.asarray(answer), str(wanted.dtype).removeprefix("torch.")
        if (ours.shape, str(ours.dtype)) != (tuple(wanted.shape), kind):
            return f"{ours.dtype}{list(ours.shape)} instead of {kind}{list(wanted.shape)}"
        mine, theirs = ours.astype("float64" if "float" in kind else kind), _wide(wanted)
        if not (
            _close(mine, theirs, kind)
            or _as_near(mine, theirs, call, place)
            or _of_equal_values(ours, wanted, call)
        ):
            with np.errstate(all="ignore"):
                worst = np.max(np.abs(mine.astype("float64") - theirs.astype("float64")))
            nans = f", {np.isnan(mine).sum()} not a number for {np.isnan(theirs).sum()}"
            largest = np.max(np.abs(theirs.astype("float64")))
            return f"output {place} off by {worst:.2g} where values reach {largest:.2g}" + (
                nans if "float" in kind else ""
            )
    return ""


def _wide(x: torch.Tensor) -> Array:
    return _plain(x.double() if x.is_floating_point() else x)


def _close(ours: Array, wanted: Array, kind: str) -> bool:
    if "float" not in kind:
        return bool(np.array_equal(ours, wanted))
    rtol, atol = _TOLERANCES.get(kind, _COARSE)
    return bool(np.allclose(ours, wanted, rtol=rtol, atol=atol, equal_nan=True))


def _of_equal_values(ours: Array, wanted: torch.Tensor, call: Sample) -> bool:
    """Whether these are places of the same values: among equal ones PyTorch leaves the choice."""
    x = call.inputs[0]
    if wanted.dtype != torch.int64 or "stable" in call.options or not ours.size:
        return False
    places = torch.from_numpy(np.array(ours))
    for dim in range(x.ndim):
        whole = places.ndim == x.ndim
        one, two = (p if whole else p.unsqueeze(dim) for p in (places, wanted))
        if one.ndim != x.ndim or int(one.min()) < 0 or int(one.max()) >= x.shape[dim]:
            continue
        others = [axis for axis in range(x.ndim) if axis != dim]
        if all(one.shape[axis] == x.shape[axis] for axis in others) and torch.equal(
            x.gather(dim, one), x.gather(dim, two)
        ):
            return True
    return False


def _as_near(ours: Array, eager: Array, call: Sample, place: int) -> bool:
    """Whether the answer is about as near as eager PyTorch's to that of float64."""
    if not np.issubdtype(eager.dtype, np.floating):
        return False
    wider = tuple(x.double() if x.is_floating_point() else x for x in _copies(call.inputs))
    try:
        exact = _wide(_results(call, wider)[place])
    except Exception:  # noqa: BLE001 - not every operator takes float64 beside its constants
        return False
    known = np.isfinite(exact) & np.isfinite(eager)
    if exact.shape != eager.shape or not np.array_equal(
        ours[~known], eager[~known], equal_nan=True
    ):
        return False
    errors = [np.max(np.abs(x - exact), initial=0.0, where=known) for x in (ours, eager)]
    return bool(errors[0] <= _WORSE_THAN_EAGER * errors[1])
