"""Test data of a function: inputs, what must come out, and how far off rounding alone is."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import tvm

from collage.backends.contract.errors import MeasurementError
from collage.cost.reference.arithmetic import MEANT, Arithmetic
from collage.cost.reference.compare import Noise, noise_of
from collage.cost.reference.evaluator import evaluate
from collage.cost.reference.fallback import Compiled
from collage.cost.reference.metrics import Metric
from collage.cost.reference.rounding import EPSILON, HALF, coarsest, formats, rounds_to_steps
from collage.cost.reference.values import Array
from collage.cost.workload.arrays import load_arrays, save_arrays

_NOISE = "noise.json"

_FEW = 100
"""One evaluation says little about how far outputs of so few elements are off."""

_DITHERS = 3
"""How many more evaluations such outputs get, and those of what rounds to steps on its way: whether
a value falls to the step beside is a matter of chance, and moves all that follow."""

_AMPLIFIED = 100.0
"""Units in the last place by root mean square from which on a network amplifies what rounding does
somewhere inside. How much becomes of that is chance, and the same for all outputs: one evaluation
may be an order of magnitude nearer than another that is as right. Others are off by a few units."""


@dataclass(frozen=True, eq=False)
class Sample:
    """Inputs and outputs.

    Attributes
    ----------
    inputs, expected : sequence of ndarray
        What to run on, and what was meant to come out.
    noise : tuple of Noise
        By output, what rounding does to it.
    metric : Metric or None
        What says how wrong outputs are, if not their largest difference.

    Examples
    --------
    >>> x = np.ones(3, np.float32)
    >>> Sample.of([x], [x]).noise[0].bound().largest
    0.001
    """

    inputs: Sequence[Array]
    expected: Sequence[Array]
    noise: tuple[Noise, ...]
    metric: Metric | None = None

    @classmethod
    def of(cls, inputs: Sequence[Array], expected: Sequence[Array]) -> Sample:
        """A sample of which nobody evaluated what rounding does: the least is allowed for.

        Parameters
        ----------
        inputs, expected : sequence of ndarray
            As the attributes.

        Returns
        -------
        Sample
            Its noise is unknown.
        """
        return cls(inputs, expected, tuple(_unknown(array) for array in expected))

    @property
    def is_finite(self) -> bool:
        """Whether everything that must come out is a number."""
        return all(
            array.dtype.kind in "biu" or bool(np.isfinite(array.astype(np.float32)).all())
            for array in self.expected
        )

    def save(self, folder: Path) -> None:
        """Write it into a folder, which is made when it is not there."""
        save_arrays(folder / "inputs", self.inputs)
        save_arrays(folder / "expected", self.expected)
        values = [dataclasses.astuple(noise) for noise in self.noise]
        (folder / _NOISE).write_text(json.dumps(values), encoding="utf-8")
        if self.metric is not None:
            self.metric.save(folder)

    @classmethod
    def load(cls, folder: Path) -> Sample:
        """The inverse of :meth:`save`; where only the arrays lie, as :meth:`of` makes it.

        Raises
        ------
        MeasurementError
            When it is gone: a model would be called without its inputs, and blamed for that.
        """
        inputs, expected = load_arrays(folder / "inputs"), load_arrays(folder / "expected")
        if not expected:
            raise MeasurementError(f"there is no sample in '{folder}'", value=folder)
        place = folder / _NOISE
        if not place.exists():
            return cls.of(inputs, expected)
        values = json.loads(place.read_text(encoding="utf-8"))
        noise = tuple(Noise(*value) for value in values)
        return cls(inputs, expected, noise, Metric.load(folder))


def sample_of(mod: tvm.IRModule, inputs: Sequence[Array], float32_as: str = "float32") -> Sample:
    """What a module's ``main`` must give, and what rounding does to it.

    It is evaluated twice: once as it is meant, with more digits than its element types have, and
    once with each operator's result rounded to its type.

    Parameters
    ----------
    mod : IRModule
        Its ``main`` is evaluated.
    inputs : sequence of ndarray
        One per parameter, of its shape and dtype.
    float32_as : str
        The format with the fewest digits that whoever computes may use for float32 tensors.

    Returns
    -------
    Sample
        The inputs, the outputs as they are meant, and the noise of each output.

    Raises
    ------
    MeasurementError
        When an input does not fit, or an operator can be evaluated neither by numpy nor by TVM.
    OutOfRangeError
        When an index is computed from the inputs that lies outside of what it selects from.

    Examples
    --------
    >>> from collage.testing import graph
    >>> from tvm.relax import op
    >>> mod = graph([(2000,)], lambda emit, x: op.sqrt(emit(op.exp(x))), dtype="float16")
    >>> sample = sample_of(mod, [np.linspace(-1, 1, 2000, dtype=np.float16)])
    >>> sample.noise[0].form, 1e-5 < sample.noise[0].rms < 1e-3
    ('float16', True)
    """
    types = formats(mod)
    if not types:
        return Sample.of(inputs, evaluate(mod, inputs))
    few_digits = bool(types & HALF) or float32_as != "float32"
    form = coarsest({*types, float32_as} if "float32" in types else types)
    # Where rounding is to float32, what is meant takes twice its digits.
    meant = MEANT if few_digits else Arithmetic(float32_in="float64")
    compiled = Compiled(mod)
    expected = evaluate(mod, inputs, meant, compiled)

    def rounded(dither: int) -> list[Noise]:
        stores = Arithmetic(stores=True, float32_as=float32_as, dither=dither)
        outputs = zip(evaluate(mod, inputs, stores, compiled), expected, strict=True)
        return [noise_of(array, wanted, form) for array, wanted in outputs]

    noise = rounded(0)
    few = any(array.size < _FEW and array.dtype.kind not in "biu" for array in expected)
    if few or rounds_to_steps(mod) or any(map(_is_amplified, noise)):
        for dither in range(1, 1 + _DITHERS):
            noise = [_larger(a, b) for a, b in zip(noise, rounded(dither), strict=True)]
    return Sample(inputs, expected, tuple(noise))


def _is_amplified(noise: Noise) -> bool:
    return noise.form in EPSILON and noise.rms > _AMPLIFIED * EPSILON[noise.form]


def _larger(a: Noise, b: Noise) -> Noise:
    overflow = max(a.overflow, b.overflow)
    return Noise(max(a.largest, b.largest), max(a.rms, b.rms), a.form, a.size, overflow)


def _form(array: Array, form: str) -> str:
    return form if array.dtype.name in EPSILON else ""


def _unknown(array: Array) -> Noise:
    return Noise(0.0, 0.0, _form(array, array.dtype.name), array.size)
