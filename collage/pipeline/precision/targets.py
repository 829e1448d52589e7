"""The targets of a search that may compute with fewer digits: each backend's, in each precision."""

from __future__ import annotations

import math
from collections.abc import Sequence

from collage.backends.contract import BackendTarget, Precision, TargetSet
from collage.backends.contract.errors import PrecisionError
from collage.cost.reference import Metric, OwnMetric

_EXACT = frozenset({Precision.FLOAT32, Precision.TF32X3})


def checked_error(max_error: float | None, precisions: Sequence[str] | None) -> float | None:
    """The error that is allowed, checked.

    Parameters
    ----------
    max_error : float or None
        As the user gave it.
    precisions : sequence of str or None
        What the user wants to have tried.

    Returns
    -------
    float or None
        The same; None where none is given.

    Raises
    ------
    PrecisionError
        When it is no positive number, or precisions are given without it.

    Examples
    --------
    >>> checked_error(0.01, None)
    0.01
    """
    if max_error is None:
        if precisions is not None:
            raise PrecisionError(
                "fewer digits need max_error, the largest error that is allowed, for example 0.01",
                value=list(precisions),
            )
        return None
    if not (math.isfinite(max_error) and max_error > 0.0):
        raise PrecisionError(
            f"max_error is {max_error}; it is a share of an output's largest value, for example "
            "0.01",
            value=max_error,
        )
    return max_error


def checked_metric(metric: str | OwnMetric | None, max_error: float | None) -> Metric | None:
    """The user's metric, checked.

    Parameters
    ----------
    metric : str, callable or None
        As the user gave it.
    max_error : float or None
        What is allowed of it.

    Returns
    -------
    Metric or None
        None where none is given.

    Raises
    ------
    PrecisionError
        When there is no such metric, or nothing says what is allowed of it.

    Examples
    --------
    >>> checked_metric("top1", 0.01).name
    'top1'
    """
    if metric is None:
        return None
    if max_error is None:
        raise PrecisionError(
            "a metric needs max_error, the largest value of it that is allowed, for example 0.01",
            value=metric,
        )
    return Metric.of(metric)


def in_precisions(targets: TargetSet, precisions: Sequence[str] | None = None) -> TargetSet:
    """The targets, and beside each library in float32 the same with fewer digits.

    Parameters
    ----------
    targets : TargetSet
        As the user gave them; those that compute with fewer digits already stay alone.
    precisions : sequence of str, optional
        Values of :class:`~collage.backends.contract.Precision`; by default all that backends have.

    Returns
    -------
    TargetSet
        With the same native target; names of those added end in the precision.

    Raises
    ------
    PrecisionError
        On a precision that does not exist, or that no target offers.

    Examples
    --------
    >>> from collage.targets import resolve_targets
    >>> in_precisions(resolve_targets(["llvm", "onednn"])).names
    ('tvm', 'onednn', 'onednn_bfloat16', 'onednn_int8')
    """
    wanted = _wanted(precisions)
    offered: list[str] = []
    members: list[BackendTarget] = []
    for target in targets.external:
        members.append(target)
        backend = target.implementation
        if backend.precision(target.options) not in _EXACT:
            continue
        for precision, attributes in backend.precisions().items():
            offered.append(precision.value)
            if precision in wanted:
                options = {**target.option_dict(), **attributes}
                name = f"{target.name}_{precision.value}"
                members.append(BackendTarget.of(target.backend, target.device, options, name))
    if precisions is not None:
        lacking = [p.value for p in wanted if p not in _EXACT and p.value not in offered]
        if lacking:
            known = ", ".join(dict.fromkeys(offered)) or "none"
            raise PrecisionError(
                f"no target computes in {lacking[0]}; those given offer: {known}", value=lacking[0]
            )
    return TargetSet(targets.native, tuple(members))


def computes_in_bytes(targets: TargetSet) -> bool:
    """Whether any of them multiplies bytes that stand for float32 values."""
    return any(t.implementation.precision(t.options) is Precision.INT8 for t in targets)


def _wanted(precisions: Sequence[str] | None) -> tuple[Precision, ...]:
    if precisions is None:
        return tuple(Precision)
    if isinstance(precisions, str):
        precisions = [precisions]
    found = []
    for name in precisions:
        try:
            found.append(Precision(name))
        except ValueError:
            known = ", ".join(one.value for one in Precision)
            raise PrecisionError(
                f"unknown precision '{name}'; known ones: {known}", value=name
            ) from None
    return tuple(found)
