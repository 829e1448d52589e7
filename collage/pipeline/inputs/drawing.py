"""Inputs that nobody gave: drawn so that a network stays in its working range.

Where it does not, its outputs say little: values that overflow, vanish into denormal numbers or are
amplified by every layer are as wrong in any program. So a draw is judged by what rounding does to
the outputs, and others are tried while that is much.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tvm
from numpy.typing import NDArray

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
    begins: bool = False

    def __str__(self) -> str:
        kind = "photograph-like noise" if self.smooth else "noise"
        masks = ", masks of ones" if self.whole else ""
        state = ", states as they begin" if self.begins else ""
        return f"{kind} of deviation {self.scale:g}{masks}{state}"


PLAIN = Draw()

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
    begin = like.initial
    if begin is not None and (draw.begins or dtype.kind in "biu" or bool(np.any(begin))):
        return begin.copy()
    if dtype.kind in "biu":
        if bound is None and draw.whole:
            return np.ones(info.shape, dtype)
        return rng.integers(0, 2 if bound is None else bound, info.shape).astype(dtype)
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


def drawn_sample(
    mod: tvm.IRModule,
    inputs: Sequence[TensorInfo],
    seed: int,
    float32_as: str,
    ranges: Sequence[Range] = (),
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

    Returns
    -------
    tuple of (Sample, tuple of str)
        With the reference's outputs; the remarks are for the report.

    Raises
    ------
    MeasurementError
        When the model cannot be evaluated.
    """
    begin = time.monotonic()

    def tried(draw: Draw) -> Sample:
        return sample_of(mod, draw_inputs(mod, inputs, seed, draw, ranges), float32_as)

    first = best = tried(PLAIN)
    chosen = PLAIN
    states = any(one.initial is not None for one in ranges)
    for draw in [*[Draw(begins=True)] * states, *_others(first, inputs)]:
        if _is_steady(best) or time.monotonic() - begin > _LIMIT_SEC:
            break
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
    was = problem_of(first) or "rounding alone moves the outputs by more"
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
