"""Entry points of library backends: generated C that is data over a runtime compiled once.

A runtime in C or C++ does the work; what is generated for a module holds its partitions as data and
one small function each, which hands both to the runtime. So it compiles in no time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import tvm

from collage.backends.contract import BuildContext
from collage.backends.toolchain import native
from collage.backends.toolchain.source_templates import source_templates

_TEMPLATE = "stubs.c.jinja"
"""Of every backend that has such stubs; it extends ``stubs_base.c.jinja``."""


@dataclass(frozen=True)
class Stubs:
    """The generated entry points of one module.

    Attributes
    ----------
    folder : Path
        Of the backend's templates and headers.
    text : str
        C source.
    symbols : sequence of str
        Global symbols of the partitions that it defines.
    constants : mapping of str to ndarray
        Data that it refers to, by symbol.

    Examples
    --------
    >>> folder = Path("templates")
    >>> folder.mkdir()
    >>> size = (folder / "stubs.c.jinja").write_text("int rows = {{ rows }};")
    >>> Stubs.render(folder, ["fused_relu"], rows=64).text
    'int rows = 64;'
    """

    folder: Path
    text: str
    symbols: Sequence[str]
    constants: Mapping[str, np.ndarray] = field(default_factory=dict)

    @classmethod
    def render(
        cls,
        folder: Path,
        symbols: Sequence[str],
        constants: Mapping[str, np.ndarray] | None = None,
        filters: Mapping[str, Callable[..., str]] | None = None,
        **values: Any,
    ) -> Stubs:
        """Fill in a backend's ``_TEMPLATE``.

        Parameters
        ----------
        folder, symbols, constants
            As the attributes have them; the template is given the symbols of the constants.
        filters : mapping, optional
            More filters, by the names that the template calls them by.
        **values
            What the template shows.

        Returns
        -------
        Stubs
            Not compiled yet.
        """
        constants = constants or {}
        template = source_templates(folder, filters).get_template(_TEMPLATE)
        text = template.render(constants=list(constants), **values)
        return cls(folder, text, symbols, constants)

    def compile(
        self, runtime: Sequence[Path], context: BuildContext, flags: Sequence[str] = ()
    ) -> tvm.runtime.Module:
        """The static library of entry points, constants and runtime.

        Parameters
        ----------
        runtime : sequence of Path
            Objects of the runtime, and of kernels.
        context : BuildContext
            Where and with what it is compiled.
        flags : sequence of str
            Compiler flags besides the folder of the templates.

        Returns
        -------
        tvm.runtime.Module
            As the final link takes it.

        Raises
        ------
        CompileError
            When the compiler or linker fails; carries its standard error.
        """
        return native.static_library(
            self.text,
            self.symbols,
            context,
            suffix=".c",
            constants=self.constants,
            flags=[f"-I{self.folder}", *flags],
            objects=runtime,
        )
