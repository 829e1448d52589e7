"""Where cuDNN's headers and library are, and the compiled runtime that uses them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from collage.backends.contract import BuildContext, LibraryRequirement
from collage.backends.contract.errors import BackendUnavailableError
from collage.backends.toolchain import compiling, cuda_toolkit
from collage.backends.toolchain.installed_library import header_version

TEMPLATES = Path(__file__).resolve().parent / "templates"
SONAME = "libcudnn.so.9"
PACKAGE = "nvidia-cudnn-cu13"

SOURCES = ("cudnn_program.cc", "cudnn_entry.cc")
"""What goes into every library with cuDNN partitions; the planner takes the first one."""

PLANNER = "cudnn_planner.cc"
"""The program that builds plans where there is a GPU."""

HEADERS = ("collage_cudnn.h", "cudnn_program.h", "cudnn_graph.h", "cudnn_step.h")


@dataclass(frozen=True)
class Installation:
    """cuDNN on this machine.

    Attributes
    ----------
    include : Path
        Folder of ``cudnn.h``.
    frontend : Path
        Folder of ``cudnn_frontend.h``.
    nvrtc : Path
        Folder of ``nvrtc.h``, which the frontend includes; nothing of it is used.
    library : Path
        ``libcudnn.so.9``. It loads the ``libcudnn_*.so.9`` beside it as it needs them.
    version, frontend_version : str
        For example ``9.28.0`` and ``1.32.0``.
    """

    include: Path
    frontend: Path
    nvrtc: Path
    library: Path
    version: str
    frontend_version: str

    def requirement(self) -> LibraryRequirement:
        """What a compiled model needs: the library, from a folder with all of its parts.

        Engines that are compiled as they are needed load NVRTC, and products cublasLt.
        """
        parts = sorted(self.library.parent.glob("libcudnn_*.so.*"))
        others = map(cuda_toolkit.find_library, cuda_toolkit.NVRTC)
        found = (*parts, *(path for path in others if path is not None))
        return LibraryRequirement(SONAME, self.version, PACKAGE, self.library, found)


def find_installation() -> Installation:
    """The cuDNN of this machine.

    Raises
    ------
    BackendUnavailableError
        When a part of it is missing; names it and the line that mends it.
    """
    headers = ("cudnn.h", "cudnn_frontend.h", "nvrtc.h")
    found = {header: cuda_toolkit.find_header_dir(header) for header in headers}
    found[SONAME] = cuda_toolkit.find_library(SONAME)
    missing = [name for name, path in found.items() if path is None]
    if missing:
        raise BackendUnavailableError(
            f"{', '.join(missing)} not found", remedy=cuda_toolkit.REMEDY, value=tuple(missing)
        )
    include, frontend, nvrtc, library = (path for path in found.values() if path is not None)
    return Installation(
        include,
        frontend,
        nvrtc,
        library,
        header_version(include / "cudnn_version.h", "CUDNN_{}", ("MAJOR", "MINOR", "PATCHLEVEL")),
        header_version(frontend / "cudnn_frontend_version.h", "CUDNN_FRONTEND_{}_VERSION"),
    )


def compile_source(name: str, installation: Installation, context: BuildContext) -> Path:
    """One of the runtime's sources as an object, compiled once per content and version.

    Parameters
    ----------
    name, installation, context
        As :func:`source_compilation` takes them.

    Returns
    -------
    Path
        The object, in the context's cache folder.

    Raises
    ------
    CompileError
        When the compiler fails; carries its standard error.
    """
    return source_compilation(name, installation, context).run()


def source_compilation(
    name: str, installation: Installation, context: BuildContext
) -> compiling.Compilation:
    """How one of the runtime's sources is compiled.

    Parameters
    ----------
    name : str
        A file of the templates.
    installation : Installation
        What it is compiled with.
    context : BuildContext
        Where to build.

    Returns
    -------
    native.Compilation
        Not run yet.

    Raises
    ------
    BackendUnavailableError
        When there is no CUDA toolkit, whose headers the sources include.
    """
    toolkit = cuda_toolkit.find_toolkit()
    flags = [
        # Kernels and plans are cuDNN's; the frontend's many templates compile faster this way.
        *("-O1", "-DNDEBUG", "-fvisibility=hidden", "-fvisibility-inlines-hidden"),
        f"-I{TEMPLATES}",
        *compiling.ffi_include_flags(),
        *("-isystem", str(installation.frontend), "-isystem", str(installation.include)),
        *("-isystem", str(toolkit.include), "-isystem", str(installation.nvrtc)),
        # In the name of the object, as the headers of another version may lie at the same place.
        f"-DCOLLAGE_CUDNN_BUILT_WITH={_macro(installation, toolkit.version)}",
    ]
    depends = [TEMPLATES / header for header in HEADERS]
    depends += [compiling.FFI_HEADER, cuda_toolkit.CUDA_HEADER]
    return compiling.cached_compilation(TEMPLATES / name, context, flags, depends)


def _macro(installation: Installation, toolkit: str) -> str:
    parts = (installation.version, installation.frontend_version, toolkit)
    return "_".join(part.replace(".", "_") for part in parts)
