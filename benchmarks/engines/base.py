"""What an engine has to do to be timed. Each runs in processes of its own (see ``worker.py``)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from numpy.typing import NDArray

Array = NDArray[Any]


class EngineMissingError(Exception):
    """The engine is not installed; the message says what would install it."""


@dataclass(frozen=True)
class Job:
    """What to run and how.

    Attributes
    ----------
    model : Path
        An ONNX file with fixed shapes.
    work_dir : Path
        For what the engines build from this model; kept between runs.
    threads : int
        Threads that the engine may compute with.
    """

    model: Path
    work_dir: Path
    threads: int


class Session(ABC):
    """A loaded model with its inputs already in place."""

    @abstractmethod
    def call(self) -> None:
        """Run the model once; returns when the outputs are complete."""

    @abstractmethod
    def outputs(self) -> list[Array]:
        """The outputs of the last call, in the model's order."""


class Engine(ABC):
    """One engine. The libraries it needs are imported in its methods only."""

    name: ClassVar[str]
    settings: ClassVar[str]
    """How it is set up, for the results' reader."""

    @abstractmethod
    def versions(self) -> dict[str, str]:
        """Versions of the libraries that decide its speed.

        Raises
        ------
        EngineMissingError
            When they are not installed.
        """

    def prepare(self, job: Job) -> dict[str, float]:
        """Build whatever can be built before the process that is timed starts.

        Returns
        -------
        dict
            Figures worth reporting, for example ``search_sec``.
        """
        return {}

    @abstractmethod
    def load(self, job: Job, inputs: Mapping[str, Array]) -> Session:
        """Load the model and place the inputs."""
