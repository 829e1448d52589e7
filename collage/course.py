"""Which straight-line parts of a model run, as its data say: the values of its control flow.

A model whose course data choose is cut into parts, each of which is searched like a model of its
own. A :class:`Course` says how they are called; :mod:`collage.passes.drive` writes it as a function
that the virtual machine runs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from numpy.typing import NDArray

from collage.structure import Signature
from collage.tensor_info import TensorInfo


@dataclass(frozen=True)
class Run:
    """A call of a part.

    Attributes
    ----------
    part : str
        The function that is called.
    inputs, outputs : tuple of str
        The values that it takes and gives, by name.

    Examples
    --------
    >>> Run("main_1", ("x",), ("y",)).outputs
    ('y',)
    """

    part: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]

    def used(self) -> Iterator[str]:
        """Every value that it reads."""
        yield from self.inputs


@dataclass(frozen=True)
class Fail:
    """An error: what comes here cannot be computed.

    Attributes
    ----------
    reason : str
        One line.

    Examples
    --------
    >>> list(Fail("no such shapes").used())
    []
    """

    reason: str

    @property
    def outputs(self) -> tuple[str, ...]:
        """No values."""
        return ()

    def used(self) -> Iterator[str]:
        """No value."""
        return iter(())


@dataclass(frozen=True)
class Region:
    """Steps in their order, and what they are made for.

    Attributes
    ----------
    steps : tuple of Step
        Calls of parts, choices, loops and errors.
    results : tuple of str
        Values of the steps, or ones that were there before.

    Examples
    --------
    >>> Region((Run("main_1", ("x",), ("y",)),), ("y",)).results
    ('y',)
    """

    steps: tuple[Step, ...]
    results: tuple[str, ...]

    def parts(self) -> Iterator[str]:
        """The functions that it may call, some more than once."""
        for step in self.steps:
            match step:
                case Run():
                    yield step.part
                case Choose():
                    yield from step.then.parts()
                    yield from step.otherwise.parts()
                case Repeat():
                    yield from step.body.parts()

    def used(self) -> Iterator[str]:
        """Every value that it reads, in order, some more than once; its own are among them."""
        for step in self.steps:
            yield from step.used()
        yield from self.results


@dataclass(frozen=True)
class Choose:
    """One of two regions.

    Attributes
    ----------
    condition : str
        A value of one element.
    then, otherwise : Region
        With results of the same types.
    outputs : tuple of str
        The results of the one that ran.

    Examples
    --------
    >>> Choose("yes", Region((), ("x",)), Region((), ("y",)), ("z",)).condition
    'yes'
    """

    condition: str
    then: Region
    otherwise: Region
    outputs: tuple[str, ...]

    def used(self) -> Iterator[str]:
        """Every value that it reads."""
        yield self.condition
        yield from self.then.used()
        yield from self.otherwise.used()


@dataclass(frozen=True)
class Repeat:
    """A region as often as the first of its states is true.

    Attributes
    ----------
    initial : tuple of str
        The states before the first round.
    states : tuple of str
        What the region calls them.
    body : Region
        Its results are the states of the next round, of the same types.
    outputs : tuple of str
        The states after the last round.

    Examples
    --------
    >>> Repeat(("go", "x"), ("g", "s"), Region((), ("g", "s")), ("stopped", "y")).outputs
    ('stopped', 'y')
    """

    initial: tuple[str, ...]
    states: tuple[str, ...]
    body: Region
    outputs: tuple[str, ...]

    def used(self) -> Iterator[str]:
        """Every value that it reads."""
        yield from self.initial
        yield from self.body.used()


@dataclass(frozen=True)
class Course:
    """The control flow of a model.

    Attributes
    ----------
    inputs, outputs : tuple of TensorInfo
        Of the model.
    region : Region
        What the model does.
    constants : mapping of str to array
        Values that are known beforehand.
    counts : tuple of (int, tuple of (int, int))
        Outputs that say how much there is of others, and which axes of which outputs these are.
    remarks : tuple of str
        What the user should know of it.
    signature : Signature or None
        How inputs and outputs lie in dicts, tuples and such; None where they lie side by side.

    Examples
    --------
    >>> x = TensorInfo((2,), "float32", "x")
    >>> Course((x,), (x,), Region((), ("x",))).constants
    {}
    """

    inputs: tuple[TensorInfo, ...]
    outputs: tuple[TensorInfo, ...]
    region: Region
    constants: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    counts: tuple[tuple[int, tuple[tuple[int, int], ...]], ...] = ()
    remarks: tuple[str, ...] = ()
    signature: Signature | None = None


Step = Run | Choose | Repeat | Fail
"""What a region is made of."""
