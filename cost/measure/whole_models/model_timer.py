"""The contract of timing whole models: against each other, all of them on one device."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path

from collage.backends.contract import BackendTarget
from collage.cost.contest import ContestRule, FixedRounds, PairedRounds
from collage.cost.deadline import NEVER, Deadline
from collage.cost.measure.runner import RunResult
from collage.cost.reference import Sample


@dataclass(frozen=True)
class WholeModel:
    """A whole model as the log knows it.

    Attributes
    ----------
    key : str
        Of the partitioned module, see :class:`collage.cost.database.keys.ModuleKeys`.
    description : str
        For the log and for messages, for example ``greedy onednn``.
    targets : tuple of BackendTarget
        Every target that the model was compiled for.
    taken_apart : bool
        Whether each call inside it is to be timed, too, where that can be.
    weights_bytes, held_bytes : int
        Of the constants in its library, and of all that it holds between two turns; 0 where that
        is not known.

    Examples
    --------
    >>> from tvm.target import Target
    >>> WholeModel("5f1c", "all tvm", (BackendTarget.of("tvm", Target("llvm")),)).description
    'all tvm'
    """

    key: str
    description: str
    targets: tuple[BackendTarget, ...]
    taken_apart: bool = True
    weights_bytes: int = 0
    held_bytes: int = 0


@dataclass(frozen=True, eq=False)
class EndToEndQuestion:
    """Which whole models are timed against each other, and on what.

    Attributes
    ----------
    models : sequence of WholeModel
        Those to compare; among equals the earlier is preferred.
    samples : sequence of Sample
        What to run them on, and what each must give. They are timed on the first.
    rounds : int
        Rounds at the most, those that were disturbed not counted.
    provisional : bool
        Whether this is asked to know whether the models run at all: the times are too few to
        count for whoever asks for a comparison, and the log keeps them apart.
    data : str
        A digest of samples that the user gave, which belongs to the models' keys; empty for those
        that follow from the models.

    Examples
    --------
    >>> import numpy as np
    >>> from tvm.target import Target
    >>> tvm_only = WholeModel("5f1c", "all tvm", (BackendTarget.of("tvm", Target("llvm")),))
    >>> x = np.ones((8, 8), np.float32)
    >>> question = EndToEndQuestion([tvm_only], [Sample.of([x], [x])])
    >>> question.rounds, question.contest
    (25, 'a550918539b1')
    """

    models: Sequence[WholeModel]
    samples: Sequence[Sample]
    rounds: int = 25
    provisional: bool = False
    data: str = ""

    @property
    def contest(self) -> str:
        """Names the models that are compared, in whatever order; a trial of them is another one."""
        keys = sorted({model.key for model in self.models})
        name = hashlib.sha256(" ".join(keys).encode()).hexdigest()[:12]
        return f"{name}, a trial" if self.provisional else name

    @property
    def rule(self) -> ContestRule:
        """Who plays, and for how long."""
        return FixedRounds(self.rounds) if self.provisional else PairedRounds(most=self.rounds)


class ModelTimer(ABC):
    """Times whole models against each other, all of them on one device."""

    def begun(
        self, question: EndToEndQuestion, deadline: Deadline = NEVER
    ) -> AbstractContextManager[None]:
        """What comes before the device is held for :meth:`measure`, which is called inside.

        Parameters
        ----------
        question : EndToEndQuestion
            What is going to be measured.
        deadline : Deadline, optional
            When nobody wants that any longer.

        Returns
        -------
        context manager
            Ends what was begun and not used. Its beginning may raise an ``OutOfTimeError``.
        """
        del question, deadline
        return nullcontext()

    @abstractmethod
    def measure(
        self, question: EndToEndQuestion, libraries: Sequence[Path], deadline: Deadline = NEVER
    ) -> list[RunResult]:
        """Check and time each model; one that fails hurts no other.

        Parameters
        ----------
        question : EndToEndQuestion
            The models to compare, and on what.
        libraries : sequence of Path
            What each was linked into, with what it needs staged beside it.
        deadline : Deadline, optional
            When it comes, the turns so far count; a model without any has an unknown cost.

        Returns
        -------
        list of RunResult
            In the order of the question's models.
        """
