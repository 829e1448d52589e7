"""What is asked of a tuner: a spec, and the configurations that may run it."""

from __future__ import annotations

from dataclasses import dataclass

from collage.backends.cutlass.families import Configuration, KernelSpec, OperatorFamily
from collage.backends.cutlass.unit import Unit


@dataclass(frozen=True)
class Question:
    """A spec, and the configurations it could be run with, the best guess first."""

    spec: KernelSpec
    family: OperatorFamily
    configurations: tuple[Configuration, ...]

    def unit(self, configuration: Configuration) -> Unit:
        """The kernel that runs the spec with one of the configurations.

        Parameters
        ----------
        configuration : Configuration
            One of the question's.

        Returns
        -------
        Unit
            Equal for all specs that the kernel serves.
        """
        return Unit.of(self.family.render(self.spec, configuration))


@dataclass(frozen=True)
class Job:
    """One configuration to be built and run."""

    spec: KernelSpec
    configuration: Configuration
    unit: Unit
    sizes: tuple[int, ...]

    @classmethod
    def of(cls, question: Question, configuration: Configuration) -> Job:
        """The job that runs a question's spec with one configuration.

        Parameters
        ----------
        question : Question
            Has the spec and its family.
        configuration : Configuration
            One of the question's.

        Returns
        -------
        Job
            With the sizes that the unit takes at run time.
        """
        sizes = question.family.launch_sizes(question.spec, configuration)
        return cls(question.spec, configuration, question.unit(configuration), sizes)
