"""What whole models are run on and compared by: the user's own inputs, or drawn ones."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import tvm
from numpy.typing import NDArray

from collage.backends.contract.errors import InputError, OutOfRangeError, last_line
from collage.cost.deadline import NEVER, Deadline
from collage.cost.reference import Metric, Noise, Sample, sample_of
from collage.cost.reference.compare import CHAOS, LARGEST_LIMIT
from collage.pipeline.inputs.drawing import drawn_sample, problem_of
from collage.pipeline.inputs.working_range import Range
from collage.tensor_info import TensorInfo

Inputs = Mapping[str, Any] | Sequence[Mapping[str, Any]]
"""One sample or several, each an array by input name."""


@dataclass(frozen=True, eq=False)
class Samples:
    """What whole models are run on.

    Attributes
    ----------
    samples : tuple of Sample
        At least one; whole models are timed on the first.
    remarks : tuple of str
        What the user should know of them.

    Examples
    --------
    >>> from collage.testing import graph
    >>> mod = graph([(3,)], lambda _, x: tvm.relax.op.exp(x))
    >>> given = [[np.zeros(3, np.float32)]]
    >>> found = samples_of(mod, [TensorInfo((3,), "float32", "x0")], given, seed=0)
    >>> found.samples[0].expected[0]
    array([1., 1., 1.], dtype=float32)
    """

    samples: tuple[Sample, ...]
    remarks: tuple[str, ...] = ()

    @property
    def rounding(self) -> float:
        """What rounding each result to its element type does to an output at the most, relative to
        the largest value of it."""
        noises = [noise.largest for sample in self.samples for noise in sample.noise if noise.form]
        return max(noises, default=0.0)

    def judged_by(self, max_error: float, metric: Metric | None = None) -> Samples:
        """The same where whatever keeps to an error is right.

        What rounding to a format does says nothing of values rounded to bytes, nor of a metric.

        Parameters
        ----------
        max_error : float
            What is allowed.
        metric : Metric, optional
            What that is in terms of.

        Returns
        -------
        Samples
            Of the same inputs and outputs.

        Raises
        ------
        PrecisionError
            When the metric fails on what the reference gives.
        """
        if metric is not None:
            # Found out here, before anybody is blamed for it.
            metric.error(self.samples[0].expected, self.samples[0].expected)
        least = max_error if metric is None else LARGEST_LIMIT

        def allowing(noise: Noise) -> Noise:
            return replace(noise, largest=max(noise.largest, least), rms=max(noise.rms, CHAOS))

        samples = (
            replace(one, noise=tuple(map(allowing, one.noise)), metric=metric)
            for one in self.samples
        )
        return replace(self, samples=tuple(samples))


def samples_of(
    mod: tvm.IRModule,
    inputs: Sequence[TensorInfo],
    given: Sequence[Sequence[NDArray[Any]]] | None,
    seed: int,
    float32_as: str = "float32",
    ranges: Sequence[Range] = (),
    until: Deadline = NEVER,
) -> Samples:
    """The user's samples with what must come out, or a drawn one.

    Parameters
    ----------
    mod : tvm.IRModule
        The normalized module.
    inputs : sequence of TensorInfo
        In the order of its parameters.
    given : sequence of sequence of ndarray or None
        The user's, from :func:`given_arrays`.
    seed : int
        Of a draw.
    float32_as : str
        As :func:`collage.cost.reference.sample_of` has it.
    ranges : sequence of Range, optional
        What drawn inputs should be like.
    until : Deadline, optional
        When what was drawn has to do.

    Returns
    -------
    Samples
        At least one, with remarks for the report.

    Raises
    ------
    MeasurementError
        When the model cannot be evaluated.
    InputError
        When an index is computed from the user's that lies outside of what it selects from, or
        from whatever is drawn.

    Examples
    --------
    >>> from collage.testing import graph
    >>> mod = graph([(3,)], lambda _, x: tvm.relax.op.exp(x))
    >>> found = samples_of(mod, [TensorInfo((3,), "float32", "x0")], None, seed=0)
    >>> len(found.samples), found.remarks
    (1, ())
    """
    if given is None:
        sample, remarks = drawn_sample(mod, inputs, seed, float32_as, ranges, until)
        return Samples((sample,), remarks + _remarks(sample, "", mod, float32_as))
    try:
        samples = tuple(sample_of(mod, one, float32_as) for one in given)
    except OutOfRangeError as err:
        raise InputError(f"on the inputs that are given {err}", value=err.value) from err
    names = [f"sample {i}: " if len(samples) > 1 else "" for i in range(1, 1 + len(samples))]
    said = [
        _remarks(sample, name, mod, float32_as) for sample, name in zip(samples, names, strict=True)
    ]
    return Samples(samples, tuple(text for texts in said for text in texts))


def given_arrays(
    inputs: Sequence[TensorInfo], given: Inputs, ranges: Sequence[Range] = ()
) -> list[list[NDArray[Any]]]:
    """The user's arrays in the order of the model's inputs, checked.

    Parameters
    ----------
    inputs : sequence of TensorInfo
        What the model takes.
    given : mapping or sequence of mapping
        Arrays by input name. What the model keeps from call to call may be left out.
    ranges : sequence of Range, optional
        Say what it holds at first.

    Returns
    -------
    list of list of ndarray
        One list per sample, an array per input.

    Raises
    ------
    InputError
        When one is missing, unknown, or of another shape or type.

    Examples
    --------
    >>> given_arrays([TensorInfo((2,), "float32", "x")], {"x": np.zeros(3, np.float32)})
    Traceback (most recent call last):
        ...
    collage.backends.contract.errors.InputError: ...
    """
    pairs = zip(inputs, ranges, strict=False)
    begin = {info.name: like.initial for info, like in pairs if like.initial is not None}
    return [_ordered(inputs, {**begin, **sample}) for sample in listed(given)]


def listed(given: Inputs) -> list[Mapping[str, Any]]:
    """One sample or several as a list.

    Raises
    ------
    InputError
        When there is none, or one is no mapping: an array without a name, for example.

    Examples
    --------
    >>> listed([np.zeros(3)])
    Traceback (most recent call last):
        ...
    collage.backends.contract.errors.InputError: ...
    """
    if isinstance(given, Mapping):
        return [given]
    for sample in given if isinstance(given, Sequence) else [given]:
        if not isinstance(sample, Mapping):
            raise InputError(
                "a sample is a mapping of arrays by input name, for example inputs={'x': array}, "
                f"and several are a list of such; not {type(sample).__name__}",
                value=type(sample).__name__,
            )
    if not given:
        raise InputError("inputs are given, but not a single sample", value=given)
    return list(given)


def as_array(name: str, value: Any) -> NDArray[Any]:
    """What the user gives for an input, of whatever library.

    Parameters
    ----------
    name : str
        The input's.
    value : array_like
        What is no array becomes one by numpy's rules.

    Returns
    -------
    ndarray
        On the host; the memory of the value where numpy can look at it.

    Raises
    ------
    InputError
        When it cannot become one: rows of different lengths, a tensor that wants a gradient.

    Examples
    --------
    >>> as_array("x", [1, 2]).shape
    (2,)
    """
    try:
        return np.asarray(value)
    except (ValueError, TypeError, RuntimeError) as err:
        raise InputError(f"input '{name}' is no array: {last_line(err)}", value=name) from err


def _ordered(inputs: Sequence[TensorInfo], sample: Mapping[str, Any]) -> list[NDArray[Any]]:
    names = [info.name for info in inputs]
    unknown = [name for name in sample if name not in names]
    if unknown:
        raise InputError(f"the model has no input '{unknown[0]}': {names}", value=unknown[0])
    arrays = []
    for info in inputs:
        if info.name not in sample:
            raise InputError(f"input '{info.name}' is missing", value=info.name)
        array = as_array(info.name, sample[info.name])
        if (array.shape, array.dtype.name) != (info.shape, info.dtype):
            raise InputError(
                f"input '{info.name}' must be {info.dtype}{list(info.shape)}, "
                f"not {array.dtype.name}{list(array.shape)}",
                value=info.name,
            )
        arrays.append(array)
    return arrays


def digest(samples: Sequence[Sequence[NDArray[Any]]]) -> str:
    """What tells the user's samples from others, for the log's keys.

    Examples
    --------
    >>> zeros, ones = np.zeros(3, np.float32), np.ones(3, np.float32)
    >>> digest([[zeros]]) == digest([[zeros.copy()]]), digest([[zeros]]) == digest([[ones]])
    (True, False)
    """
    found = hashlib.sha256()
    for sample in samples:
        for array in sample:
            found.update(np.ascontiguousarray(array).view(np.uint8).data)
    return found.hexdigest()[:16]


def _remarks(sample: Sample, name: str, mod: tvm.IRModule, float32_as: str) -> tuple[str, ...]:
    problem = problem_of(sample)
    if not problem:
        return ()
    forms = {noise.form for noise in sample.noise if noise.form}
    wide = float32_as == "float32" and forms <= {"float32", "float64"}
    if any(noise.is_chaotic for noise in sample.noise) and wide:
        problem += ", even in float32: the network is chaotic there"
    return (f"{name}{problem}; results can hardly be told right from wrong by such inputs",)
