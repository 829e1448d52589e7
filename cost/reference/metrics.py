"""How wrong outputs are in the user's own terms."""

from __future__ import annotations

import hashlib
import math
import pickle
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from collage.backends.contract.errors import PrecisionError, last_line
from collage.cost.reference.values import Array

TOP1 = "top1"
"""The share of classes that differ."""

OwnMetric = Callable[[Sequence[Array], Sequence[Array]], float]
"""Takes a sample's outputs and those of the reference; 0 where nothing is wrong."""

_FILE = "metric.bin"


@dataclass(frozen=True)
class Metric:
    """A number that says how wrong a sample's outputs are; of several samples the mean counts.

    Attributes
    ----------
    name : str
        ``top1``, or what a function is called.
    code : bytes
        The function, pickled for the processes that measure; empty for ``top1``.

    Examples
    --------
    >>> scores = np.array([[0.1, 0.7, 0.2], [0.5, 0.4, 0.1]], np.float32)
    >>> Metric.of("top1").error([scores[:, ::-1]], [scores])
    0.5
    """

    name: str
    code: bytes = b""

    @classmethod
    def of(cls, metric: str | OwnMetric) -> Metric:
        """A metric as a user gives it.

        Raises
        ------
        PrecisionError
            When it is neither ``top1`` nor a function, or cannot be brought to other processes.
        """
        if metric == TOP1:
            return cls(TOP1)
        if isinstance(metric, str) or not callable(metric):
            raise PrecisionError(
                f"unknown metric {metric!r}; give 'top1', or a function of outputs and the "
                "reference's outputs that returns a number, 0 where nothing is wrong",
                value=metric,
            )
        name = str(getattr(metric, "__name__", type(metric).__name__))
        try:
            # By value: whoever measures may not find the module that it stands in.
            return cls(name, _pickled(metric))
        except Exception as err:
            raise PrecisionError(
                f"the metric '{name}' cannot be brought to the processes that measure: "
                f"{last_line(err)}",
                value=name,
            ) from err

    @property
    def key(self) -> str:
        """What tells it from others, for the log's keys."""
        return f"{self.name} {hashlib.sha256(self.code).hexdigest()[:16]}" if self.code else TOP1

    def error(self, outputs: Sequence[Array], expected: Sequence[Array]) -> float:
        """How wrong outputs are.

        Parameters
        ----------
        outputs, expected : sequence of ndarray
            A sample's, and those of the reference.

        Returns
        -------
        float
            0 where nothing is wrong.

        Raises
        ------
        PrecisionError
            When the function fails, or gives no number.
        """
        if not self.code:
            return max(map(_other_classes, outputs, expected), default=0.0)
        try:
            # Written by this program, for its own processes.
            function = pickle.loads(self.code)  # noqa: S301
            value = float(function(list(outputs), list(expected)))
        except Exception as err:
            raise PrecisionError(
                f"the metric '{self.name}' fails: {last_line(err)}", value=self.name
            ) from err
        if math.isnan(value) or value < 0.0:
            raise PrecisionError(
                f"the metric '{self.name}' gives {value}, not a number from 0 on", value=value
            )
        return value

    def save(self, folder: Path) -> None:
        """Write it into a folder of :class:`~collage.cost.reference.sample.Sample`."""
        (folder / _FILE).write_bytes(f"{self.name}\n".encode() + self.code)

    @classmethod
    def load(cls, folder: Path) -> Metric | None:
        """The inverse of :meth:`save`; None where there is none."""
        if not (folder / _FILE).exists():
            return None
        name, _, code = (folder / _FILE).read_bytes().partition(b"\n")
        return cls(name.decode(), code)


def _other_classes(outputs: Array, expected: Array) -> float:
    """Of rows of scores, the share whose largest is another; of whole numbers, that of others."""
    if expected.size == 0 or outputs.shape != expected.shape:
        return float(outputs.shape != expected.shape)
    if expected.dtype.kind in "biu":
        return float(np.mean(outputs != expected))
    # Classes stand along the last axis that has any.
    classes = next((extent for extent in reversed(expected.shape) if extent > 1), 1)
    got, wanted = (array.reshape(-1, classes).argmax(1) for array in (outputs, expected))
    return float(np.mean(got != wanted))


def _pickled(function: OwnMetric) -> bytes:
    try:
        import cloudpickle
    except ImportError:
        # Functions at the top of an importable module are known by their names.
        return pickle.dumps(function)
    made: bytes = cloudpickle.dumps(function)
    return made
