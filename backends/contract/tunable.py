"""What a backend adds to the contract when choosing its kernels takes measurements."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence

from tvm import relax

from collage.backends.contract.base import BackendTarget, BuildContext, ExternalBackend


class TunableBackend(ExternalBackend):
    """A backend that tries things out on the device before it compiles.

    A search hands it all of its candidates at once, before it builds them one by one. A process
    that begins to use a GPU holds a lock of the driver for a quarter of a second (of an H200's,
    release 580), and every other process waits: one for each candidate is what a search must not
    start.
    """

    @abstractmethod
    def tune(
        self,
        functions: Sequence[relax.Function],
        target: BackendTarget,
        context: BuildContext,
    ) -> None:
        """Choose what runs each function, and keep the choices where :meth:`codegen` finds them.

        A choice is best kept as soon as it is made, so that a call that is broken off was not in
        vain. Where there is no device to try things out on, there is nothing to do.

        Parameters
        ----------
        functions : sequence of relax.Function
            As :meth:`codegen` gets them, of any number of modules: symbols may repeat.
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
