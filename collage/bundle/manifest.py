"""The bundle's manifest: what is in it, and what it needs of the machine that loads it."""

from __future__ import annotations

from pathlib import Path

import msgspec

from collage.backends.contract.errors import BundleError
from collage.backends.contract.requirements import RequiredLibrary
from collage.backends.devices import CPU
from collage.bundle.integrity import BundleFile
from collage.bundle.signature import FunctionEntry, Variant
from collage.report import MemoryUse, Report
from collage.structure import SIGNATURE_VERSION
from collage.tensor_info import TensorInfo

MANIFEST = "manifest.json"
REPORT = "report.json"
SCHEMA_VERSION = 2
"""Since 2 there are several functions, and shapes in buckets."""
ROWS_SCHEMA_VERSION = 3
"""Of bundles whose results have to be cut, which earlier releases did not do."""
_READABLE = (1, 2, 3)


class ShippedLibrary(msgspec.Struct, frozen=True):
    """A shared library in the bundle, by its place in it."""

    file: str
    sha256: str


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """The content of ``manifest.json``.

    Attributes
    ----------
    created : str
        When, in UTC.
    model : str
        What was compiled.
    library : str
        The file with the kernels and constants.
    entry : str
        The function to call when no other is wanted.
    inputs, outputs : tuple of TensorInfo
        Of that one, in the order of the call.
    functions : tuple of FunctionEntry
        All functions, that one's first; see :attr:`all_functions`.
    num_threads : int
        What the kernels run with; 0 is all cores.
    denormals : str
        What a CPU's kernels do with denormal numbers, ``flushed`` or ``ieee``; empty for other
        devices.
    architecture, system : str
        As ``uname`` calls them.
    cpu_flags : tuple of str
        The instruction set extensions that the processor's code may use, as Linux names them.
    device, arch : str
        The kind of device, and what its code was compiled for where that decides.
    tvm_version, tvm_ffi_version : str
        What compiled it.
    backend_versions : dict of str to str
        Of every backend and the libraries behind it.
    shared_libraries : tuple of ShippedLibrary
        What lies in ``lib/``.
    required_libraries : tuple of RequiredLibrary
        What is too large to ship.
    runtimes : dict of str to str
        By backend, what else runs its partitions.
    files : tuple of BundleFile
        What it cannot run without, as it was written; empty in bundles of earlier releases.
    borrowed_outputs : dict of str to tuple of int, or None
        By entry, which outputs are weights of the model, or its inputs, and not to be given away;
        None in bundles of earlier releases.
    memory : MemoryUse or None
        What the library takes once it is loaded and called, as far as that is known; None in
        bundles of earlier releases.
    schema_version : int
        See ``SCHEMA_VERSION``.

    Examples
    --------
    >>> from collage.testing.estimated import estimated_bundle
    >>> manifest = read_manifest(estimated_bundle(Path("exp.bundle")))
    >>> manifest.entry, manifest.library, manifest.inputs[0].shape
    ('main', 'model.so', (1, 8))
    """

    created: str
    model: str
    library: str
    entry: str
    inputs: tuple[TensorInfo, ...]
    outputs: tuple[TensorInfo, ...]
    functions: tuple[FunctionEntry, ...] = ()
    num_threads: int
    denormals: str = ""
    architecture: str
    system: str
    cpu_flags: tuple[str, ...]
    device: str = CPU.name
    arch: str = ""
    tvm_version: str
    tvm_ffi_version: str
    backend_versions: dict[str, str]
    shared_libraries: tuple[ShippedLibrary, ...]
    required_libraries: tuple[RequiredLibrary, ...] = ()
    runtimes: dict[str, str] = {}
    files: tuple[BundleFile, ...] = ()
    borrowed_outputs: dict[str, tuple[int, ...]] | None = None
    memory: MemoryUse | None = None
    schema_version: int

    @property
    def all_functions(self) -> tuple[FunctionEntry, ...]:
        """The functions; bundles of version 1 have the one."""
        return self.functions or (
            FunctionEntry(self.entry, (Variant(self.entry, self.inputs, self.outputs),)),
        )

    def write(self, folder: Path) -> None:
        """Write it into a bundle's folder.

        Raises
        ------
        OSError
            When the folder is not there, or cannot be written to.
        """
        text = msgspec.json.format(msgspec.json.encode(self), indent=2)
        (folder / MANIFEST).write_bytes(text + b"\n")


class _Version(msgspec.Struct):
    schema_version: int | None = None


def read_manifest(folder: Path) -> Manifest:
    """The manifest of a bundle.

    Raises
    ------
    BundleError
        When the folder is no bundle, or of a version that this one cannot read.

    Examples
    --------
    >>> from collage.testing.estimated import estimated_bundle
    >>> read_manifest(estimated_bundle(Path("exp.bundle"))).device
    'cpu'
    """
    path = folder / MANIFEST
    try:
        text = path.read_bytes()
        found = msgspec.json.decode(text, type=_Version).schema_version
        if found not in _READABLE:
            raise BundleError(
                f"'{path}' has schema version {found}; this version reads "
                f"{' and '.join(map(str, _READABLE))}",
                value=found,
            )
        manifest = msgspec.json.decode(text, type=Manifest)
        for function in manifest.functions:
            if function.signature and function.signature.version != SIGNATURE_VERSION:
                raise BundleError(
                    f"'{path}' has a signature of version {function.signature.version}; this "
                    f"version reads {SIGNATURE_VERSION}",
                    value=function.signature.version,
                )
        return manifest
    except FileNotFoundError as err:
        raise BundleError(f"'{folder}' is no bundle: it has no {MANIFEST}", value=folder) from err
    except NotADirectoryError as err:
        raise BundleError(
            f"'{folder}' is a file and no bundle; of a model 'collage optimize' makes one",
            value=folder,
        ) from err
    except (OSError, ValueError, RecursionError) as err:
        raise BundleError(f"'{path}' cannot be read: {_reason(err)}", value=folder) from err


def _reason(error: Exception) -> str:
    """Without the path, which is said before it."""
    return str(getattr(error, "strerror", None) or error)


def read_report(folder: Path) -> Report:
    """The report of a bundle, which may be another machine's: it is not loaded.

    Raises
    ------
    BundleError
        When the folder is no bundle, or its report cannot be read.

    Examples
    --------
    >>> from collage.testing.estimated import estimated_bundle
    >>> [node.op for node in read_report(estimated_bundle(Path("exp.bundle"))).nodes]
    ['exp']
    """
    read_manifest(folder)
    place = folder / REPORT
    try:
        return Report.from_json(place.read_text(encoding="utf-8"))
    except FileNotFoundError as err:
        raise BundleError(f"bundle '{folder}' lacks {REPORT}: copy it whole", value=place) from err
    except (OSError, UnicodeDecodeError) as err:
        raise BundleError(f"cannot read report '{place}': {_reason(err)}", value=place) from err
