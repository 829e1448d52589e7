"""Inputs that nobody gave: drawn so that a network stays in its working range.

Where it does not, its outputs say little: values that overflow, vanish into denormal numbers or are
amplified by every layer are as wrong in any program. So a draw is judged by what rounding does to
the outputs, and others are tried while that is much.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import tvm
from numpy.typing import NDArray

from collage.backends.contract.errors import InputError, OutOfRangeError
from collage.cost.deadline import NEVER, Deadline
from collage.cost.reference import Sample, sample_of
from collage.cost.reference.compare import CHAOS
from collage.cost.reference.rounding import EPSILON
from collage.cost.workload.index_bounds import index_bounds
from collage.pipeline.inputs.working_range import Range
from collage.tensor_info import TensorInfo

_STEADY_ULPS, _STEADY = 16.0, 1e-3
"""What rounding may do by root mean square before another draw is tried: so many units in the last
place, and at least so much."""

_LIMIT_SEC = 20.0
"""No other draw is tried after this time: a large network is judged on what there is."""


@dataclass(frozen=True)
class Draw:
    """How inputs are drawn.

    Attributes
    ----------
    scale : float
        Standard deviation of floats, relative to what an input should be like.
    smooth : bool
        Whether what has two axes of pixels is drawn like a photograph, whose spectrum falls with
        the frequency, not like noise.
    whole : bool
        Whether integers that select nothing, masks among them, are all 1.
    even : bool
        Whether floats lie evenly between 0 and 1, as those do of which a model computes places.
    examples : bool
        Whether that is taken with which the model was traced, as far as that is known.
    begins : bool
        Whether what the model keeps is as before the first call; else that is so of what does not
        begin as zeros of floats.

    Examples
    --------
    >>> str(Draw(scale=4.0, smooth=True))
    'photograph-like noise of deviation 4'
    """

    scale: float = 1.0
    smooth: bool = False
    whole: bool = False
    even: bool = False
    examples: bool = False
    begins: bool = False

    def __str__(self) -> str:
        kind = "photograph-like noise" if self.smooth else "noise"
        kind = "evenly drawn from 0 to 1" if self.even else f"{kind} of deviation {self.scale:g}"
        kind = "those that the model was traced with" if self.examples else kind
        masks = ", masks of ones" if self.whole else ""
        state = ", states as they begin" if self.begins else ""
        return f"{kind}{masks}{state}"


PLAIN = Draw()

_NARROW = (Draw(even=True), Draw(examples=True), Draw(even=True, whole=True))
"""What is tried where indices are computed from noise that lie outside of what they select from."""

_QUIETER = tuple(Draw(scale) for scale in (1 / 4, 1 / 16, 1 / 64))
_LOUDER = (Draw(4.0), Draw(1.0, smooth=True), Draw(4.0, smooth=True), Draw(16.0))


def draw_inputs(
    mod: tvm.IRModule,
    inputs: Sequence[TensorInfo],
    seed: int,
    draw: Draw = PLAIN,
    ranges: Sequence[Range] = (),
) -> list[NDArray[Any]]:
    """Seeded inputs of a model.

    Parameters
    ----------
    mod : tvm.IRModule
        Says which inputs are indices, and into how many elements.
    inputs : sequence of TensorInfo
        In the order of ``main``'s parameters.
    seed : int
        Of all of them.
    draw : Draw, optional
        How.
    ranges : sequence of Range, optional
        What each should be like.

    Returns
    -------
    list of ndarray
        One per input, of its shape and dtype.

    Examples
    --------
    >>> from collage.testing import graph
    >>> mod = graph([(2, 3)], lambda _, x: tvm.relax.op.exp(x))
    >>> (array,) = draw_inputs(mod, [TensorInfo((2, 3), "float32", "x0")], seed=0)
    >>> array.shape, array.dtype.name
    ((2, 3), 'float32')
    """
    known = zip(inputs, index_bounds(mod), ranges or [Range()] * len(inputs), strict=True)
    return [_array(*one, seed + i, draw) for i, one in enumerate(known)]


def _array(info: TensorInfo, bound: int | None, like: Range, seed: int, draw: Draw) -> NDArray[Any]:
    rng = np.random.default_rng(seed)
    dtype = np.dtype(info.dtype)
    if draw.examples and like.example is not None:
        return like.example.copy()
    begin = like.initial
    if begin is not None and (draw.begins or dtype.kind in "biu" or bool(np.any(begin))):
        return begin.copy()
    if dtype.kind in "biu":
        if bound is None and draw.whole:
            return np.ones(info.shape, dtype)
        return rng.integers(0, 2 if bound is None else bound, info.shape).astype(dtype)
    if draw.even:
        return rng.random(info.shape).astype(dtype)
    values = rng.standard_normal(info.shape)
    if draw.smooth and len(info.shape) >= 3 and min(info.shape[-2:]) > 8:
        values = _photograph(values)
    return (like.mean + values * (like.deviation * draw.scale)).astype(dtype)


def _photograph(values: NDArray[Any]) -> NDArray[Any]:
    """White noise with the spectrum of photographs, of the same deviation; over the last two axes,
    or those before channels that come last."""
    axes = (-3, -2) if values.shape[-1] <= 4 < min(values.shape[-3:-1]) else (-2, -1)
    spectrum = np.fft.fftn(values, axes=axes)
    squares = np.zeros([1] * values.ndim)
    for axis in axes:
        shape = [1] * values.ndim
        shape[axis] = values.shape[axis]
        squares = squares + (np.fft.fftfreq(values.shape[axis]) ** 2).reshape(shape)
    lowest = 1.0 / max(values.shape[axis] for axis in axes)
    result: NDArray[Any] = np.fft.ifftn(
        spectrum / np.maximum(np.sqrt(squares), lowest), axes=axes
    ).real
    return result / max(float(result.std()), 1e-12)


def working_sample(
    mod: tvm.IRModule,
    inputs: Sequence[TensorInfo],
    seed: int,
    float32_as: str = "float32",
    ranges: Sequence[Range] = (),
) -> Sample:
    """A sample on which the model can be evaluated, whatever it computes there.

    Parameters
    ----------
    mod, inputs, seed, float32_as, ranges
        As :func:`drawn_sample` takes them.

    Returns
    -------
    Sample
        Of noise, unless indices are computed from it that select nothing.

    Raises
    ------
    MeasurementError
        When the model cannot be evaluated.
    InputError
        When indices are outside of what they select from, whatever is drawn.
    """
    return _first(lambda draw: _on(mod, inputs, seed, draw, float32_as, ranges))[1]


def _on(
    mod: tvm.IRModule,
    inputs: Sequence[TensorInfo],
    seed: int,
    draw: Draw,
    float32_as: str,
    ranges: Sequence[Range],
) -> Sample:
    return sample_of(mod, draw_inputs(mod, inputs, seed, draw, ranges), float32_as)


def _first(tried: Callable[[Draw], Sample]) -> tuple[Draw, Sample, str]:
    """The first draw on which a model can be evaluated, and what was in the way of noise."""
    reason: OutOfRangeError | None = None
    for draw in (PLAIN, *_NARROW):
        try:
            return draw, tried(draw), str(reason or "")
        except OutOfRangeError as err:
            reason = reason or err
    raise InputError(
        f"on no inputs that were drawn the model can be evaluated: {reason}; give some on which it "
        "works, for example inputs={'x': array}",
        value=reason,
    ) from reason


def drawn_sample(
    mod: tvm.IRModule,
    inputs: Sequence[TensorInfo],
    seed: int,
    float32_as: str,
    ranges: Sequence[Range] = (),
    until: Deadline = NEVER,
) -> tuple[Sample, tuple[str, ...]]:
    """A sample on which the model computes something, and remarks on what it is.

    Parameters
    ----------
    mod : tvm.IRModule
        The model.
    inputs : sequence of TensorInfo
        Its inputs.
    seed : int
        Of the draws.
    float32_as : str
        As :func:`collage.cost.reference.sample_of` has it.
    ranges : sequence of Range, optional
        What each input should be like.
    until : Deadline, optional
        When no other draw is tried any longer, if not sooner; one that would not be evaluated by
        then is not begun.

    Returns
    -------
    tuple of (Sample, tuple of str)
        With the reference's outputs; the remarks are for the report.

    Raises
    ------
    MeasurementError
        When the model cannot be evaluated.
    InputError
        When indices are outside of what they select from, whatever is drawn.
    """
    until = until.or_earlier(Deadline.after(_LIMIT_SEC))
    begin = time.monotonic()

    def tried(draw: Draw) -> Sample:
        return _on(mod, inputs, seed, draw, float32_as, ranges)

    chosen, best, reason = _first(tried)
    first, each_sec = best, time.monotonic() - begin
    states = any(one.initial is not None for one in ranges)
    for draw in [*[Draw(begins=True)] * states, *_others(first, inputs)]:
        if _is_steady(best) or until.left_sec() < each_sec:
            break
        with suppress(OutOfRangeError):
            sample = tried(draw)
            if _badness(sample) < _badness(best):
                best, chosen = sample, draw
    said = tuple(
        f"input '{info.name}' has mean {like.mean:.3g} and deviation {like.deviation:.3g}, as the "
        "first batch norm after it expects"
        for info, like in zip(inputs, ranges, strict=False)
        if like != Range()
    )
    if chosen == PLAIN:
        return best, said
    was = reason or problem_of(first) or "rounding alone moves the outputs by more"
    return best, (
        *said,
        f"inputs are {chosen}: on {PLAIN} {was}",
    )


def _others(first: Sample, inputs: Sequence[TensorInfo]) -> list[Draw]:
    """What else to try, the most promising first."""
    masks = [Draw(whole=True)] if any(np.dtype(i.dtype).kind in "biu" for i in inputs) else []
    floats = any(np.dtype(i.dtype).kind not in "biu" for i in inputs)
    if not floats:
        return masks
    overflows = not first.is_finite or any(noise.overflow for noise in first.noise)
    scales = (*_QUIETER, *_LOUDER) if overflows else (*_LOUDER, *_QUIETER)
    return [*masks, *scales]


def _is_steady(sample: Sample) -> bool:
    return problem_of(sample) == "" and all(
        noise.rms <= max(_STEADY, _STEADY_ULPS * EPSILON[noise.form])
        for noise in sample.noise
        if noise.form
    )


def _badness(sample: Sample) -> tuple[bool, float, bool, float]:
    overflow = max((noise.overflow for noise in sample.noise), default=0.0)
    rms = max((noise.rms for noise in sample.noise), default=0.0)
    return not sample.is_finite, overflow, _vanishes(sample), rms


def _vanishes(sample: Sample) -> bool:
    """Whether a float output is nothing but zeros."""
    return any(a.size and a.dtype.kind not in "biu" and not np.any(a) for a in sample.expected)


def problem_of(sample: Sample) -> str:
    """Why a sample says little about whether a program is right; empty where it says much.

    Examples
    --------
    >>> problem_of(Sample.of([], [np.zeros(3, np.float32)]))
    'all of an output is zero'
    """
    forms = {noise.form for noise in sample.noise if noise.form}
    form = max(forms, key=lambda name: EPSILON[name], default="float32")
    if not sample.is_finite:
        return "outputs are no numbers"
    if any(noise.overflow for noise in sample.noise):
        return f"values overflow in {form}"
    if _vanishes(sample):
        return "all of an output is zero"
    worst = max((noise.rms for noise in sample.noise if noise.form), default=0.0)
    if worst > CHAOS:
        return f"rounding to {form} alone moves an output by {worst:.0%} of its size"
    return ""
