"""What a backend can do ahead of compiling a candidate: its sources, its choices."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from tvm import relax

from collage.backends.contract.context import BuildContext
from collage.backends.contract.target import BackendTarget

if TYPE_CHECKING:
    from collage.backends.toolchain.compiling import Compilation


@runtime_checkable
class Precompiles(Protocol):
    """Has sources that every one of its libraries takes in, such as a runtime.

    Examples
    --------
    >>> from collage.backends.contract import get_backend, members_of
    >>> import tvm
    >>> target = BackendTarget.of("onednn", tvm.target.Target("llvm"))
    >>> [backend.name for backend, _ in members_of(Precompiles, [target])]
    ['onednn']
    """

    def compilations(self, target: BackendTarget, context: BuildContext) -> Sequence[Compilation]:
        """What ``codegen`` compiles whatever the functions are.

        Begun in the background when a search begins; ``codegen`` compiles what is not there, and
        what fails is reported there.

        Parameters
        ----------
        target : BackendTarget
            With this backend's options.
        context : BuildContext
            Where to build.

        Returns
        -------
        sequence of Compilation
            Independent of each other, so that they may run at once.
        """
        ...


@runtime_checkable
class Tunable(Protocol):
    """Tries things out on the device before it compiles.

    A search hands it all of its candidates at once, before it builds them one by one. A process
    that begins to use a GPU holds a lock of the driver for a quarter of a second (of an H200's,
    release 580), and every other process waits: one for each candidate is what a search must not
    start.

    Examples
    --------
    >>> class Mine:
    ...     def tune(self, functions, target, context):
    ...         pass  # Times kernels and keeps choices in a collage.backends.storage.TuningStore.
    >>> isinstance(Mine(), Tunable)
    True
    """

    def tune(
        self, functions: Sequence[relax.Function], target: BackendTarget, context: BuildContext
    ) -> None:
        """Choose what runs each function, and keep the choices where ``codegen`` finds them.

        A choice is best kept as soon as it is made, so that a call that is broken off was not in
        vain. Where there is no device to try things out on, there is nothing to do.

        Parameters
        ----------
        functions : sequence of relax.Function
            As ``codegen`` gets them, of any number of modules: symbols may repeat.
        target : BackendTarget
            With this backend's options.
        context : BuildContext
            Where to build and what to remember choices in.

        Raises
        ------
        CodegenError
            When there is none for a function, after all others were tuned. Compiling that function
            fails for the same reason.
        """
        ...


@runtime_checkable
class TunesOneByOne(Tunable, Protocol):
    """Tells of each function whose choice is kept: it is built while others are still tuned.

    Examples
    --------
    >>> class Mine:
    ...     def tune(self, functions, target, context):
    ...         self.tune_each(functions, target, context, lambda index: None)
    ...
    ...     def tune_each(self, functions, target, context, settled):
    ...         for index, function in enumerate(functions):
    ...             settled(index)
    >>> isinstance(Mine(), TunesOneByOne)
    True
    """

    def tune_each(
        self,
        functions: Sequence[relax.Function],
        target: BackendTarget,
        context: BuildContext,
        settled: Callable[[int], None],
    ) -> None:
        """Do what :meth:`Tunable.tune` does, and tell of each function.

        Parameters
        ----------
        functions, target, context
            As for :meth:`Tunable.tune`.
        settled : callable
            Told the index of each function that ``codegen`` has to try nothing out for any more, in
            any order, in the calling thread. Those that nothing runs need not be told of.

        Raises
        ------
        CodegenError
            As :meth:`Tunable.tune`.
        """
        ...
