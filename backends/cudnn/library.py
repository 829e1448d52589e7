"""Where cuDNN's headers and library are, and the compiled runtime that uses them."""

from __future__ import annotations

from pathlib import Path

from collage.backends.contract import BuildContext, LibraryRequirement
from collage.backends.contract.errors import BackendUnavailableError
from collage.backends.toolchain import compiling, cuda_toolkit
from collage.backends.toolchain.installed_library import InstalledLibrary, header_version

TEMPLATES = Path(__file__).resolve().parent / "templates"
SONAME = "libcudnn.so.9"
PACKAGE = "nvidia-cudnn-cu13"

SOURCES = ("cudnn_program.cc", "cudnn_entry.cc")
"""What goes into every library with cuDNN partitions; the planner takes the first one."""

PLANNER = "cudnn_planner.cc"
"""The program that builds plans where there is a GPU."""

HEADERS = (
    "collage_cudnn.h",
    "cudnn_program.h",
    "cudnn_descriptor.h",
    "cudnn_operations.h",
    "cudnn_attention.h",
    "cudnn_graph.h",
    "cudnn_plan.h",
    "cudnn_step.h",
)


class Installation(InstalledLibrary):
    """cuDNN on this machine: ``cudnn.h``, and the library, which loads the others beside it."""

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
    include, library = cuda_toolkit.find_header_dir("cudnn.h"), cuda_toolkit.find_library(SONAME)
    if include is None or library is None:
        missing = [name for name, path in (("cudnn.h", include), (SONAME, library)) if path is None]
        raise BackendUnavailableError(
            f"{', '.join(missing)} not found", remedy=cuda_toolkit.REMEDY, value=tuple(missing)
        )
    version = header_version(
        include / "cudnn_version.h", "CUDNN_{}", ("MAJOR", "MINOR", "PATCHLEVEL")
    )
    return Installation(include, library, version)


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
        # Kernels and plans are cuDNN's, and the first call waits for no more than a second.
        *("-O1", "-DNDEBUG", "-fvisibility=hidden", "-fvisibility-inlines-hidden"),
        f"-I{TEMPLATES}",
        *compiling.ffi_include_flags(),
        *("-isystem", str(installation.include), "-isystem", str(toolkit.include)),
        # In the name of the object, as the headers of another version may lie at the same place.
        f"-DCOLLAGE_CUDNN_BUILT_WITH={_macro(installation, toolkit.version)}",
    ]
    depends = [TEMPLATES / header for header in HEADERS]
    depends += [compiling.FFI_HEADER, cuda_toolkit.CUDA_HEADER]
    return compiling.cached_compilation(TEMPLATES / name, context, flags, depends)


def _macro(installation: Installation, toolkit: str) -> str:
    return "_".join(part.replace(".", "_") for part in (installation.version, toolkit))
