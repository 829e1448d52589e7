"""Writes the deployable folder.

``model.so`` holds every kernel and constant, ``lib/`` the shared libraries it was linked with,
``weights/`` the constants that it maps where they are too many to be inside, ``manifest.json`` says
what it needs.
"""

from __future__ import annotations

import datetime
import platform
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

import tvm
import tvm_ffi

from collage.backends.contract import BuildContext
from collage.backends.contract.errors import OutputError
from collage.backends.contract.requirements import RequiredLibrary
from collage.backends.devices import device_of
from collage.backends.devices.cpu_flags import cpu_flags_of
from collage.backends.link import CompiledLibrary, stage_libraries
from collage.bundle.folder import LIB, RUNTIME, WEIGHTS
from collage.bundle.integrity import file_facts
from collage.bundle.manifest import (
    REPORT,
    ROWS_SCHEMA_VERSION,
    SCHEMA_VERSION,
    Manifest,
    ShippedLibrary,
)
from collage.bundle.native import runtime_libraries
from collage.bundle.signature import MAIN, FunctionEntry, Variant
from collage.bundle.state_files import files_of, write_initial
from collage.report import MemoryUse, Report
from collage.tensor_info import TensorInfo


def write_bundle(
    folder: Path,
    library: CompiledLibrary,
    *,
    model: str,
    inputs: Sequence[TensorInfo],
    outputs: Sequence[TensorInfo],
    context: BuildContext,
    versions: Mapping[str, str],
    device: tvm.target.Target,
    report: Report,
    functions: Sequence[FunctionEntry] = (),
    borrowed_outputs: Mapping[str, Sequence[int]] | None = None,
    memory: MemoryUse | None = None,
    with_runtime: bool = False,
    with_libraries: bool = False,
) -> Path:
    """Complete a bundle around a library that was linked to ``folder / 'model.so'``.

    Parameters
    ----------
    folder : Path
        The bundle's, see :func:`filling`.
    library : CompiledLibrary
        What it holds.
    model : str
        What was compiled.
    inputs, outputs : sequence of TensorInfo
        Of what a call of the bundle itself calls.
    context : BuildContext
        What it was compiled in: how many threads it has, and what becomes of denormals.
    versions : mapping of str to str
        Of every backend and the libraries behind it.
    device : tvm.target.Target
        What it was compiled for.
    report : Report
        What the search found out.
    functions : sequence of FunctionEntry, optional
        All that can be called, that one first; by default it is ``main``, for the one set of
        shapes.
    borrowed_outputs : mapping of str to sequence of int, optional
        By entry, see :func:`borrowed_outputs`; where it is not known, results are copied.
    memory : MemoryUse, optional
        What it takes.
    with_runtime : bool
        Whether TVM's runtime is copied into ``runtime/``, for programs without Python.
    with_libraries : bool
        Whether what backends need and do not bring along is copied there, CUDA's libraries.

    Returns
    -------
    Path
        ``folder``.

    Raises
    ------
    OutputError
        When something cannot be written.

    Examples
    --------
    >>> from collage.backends.compile import compile_module
    >>> from collage.targets import resolve_targets
    >>> from collage.testing import graph
    >>> (native,) = resolve_targets(["llvm"])
    >>> mod = graph([(1, 8)], lambda emit, x: tvm.relax.op.exp(x))
    >>> folder = Path("small.bundle")
    >>> folder.mkdir()
    >>> context = BuildContext(Path("cache"), Path("work"))
    >>> bundle = write_bundle(
    ...     folder,
    ...     compile_module(mod, [native], folder / "model.so", context),
    ...     model="exp",
    ...     inputs=[TensorInfo((1, 8), "float32", "x")],
    ...     outputs=[TensorInfo((1, 8), "float32", "y")],
    ...     context=context,
    ...     versions={},
    ...     device=native.device,
    ...     report=Report("exp", "", device={}, versions={}, targets=[], nodes=[], partitions=[]),
    ... )
    >>> sorted(path.name for path in bundle.iterdir())
    ['lib', 'manifest.json', 'model.so', 'report.json']
    """
    main = FunctionEntry(MAIN, (Variant(MAIN, tuple(inputs), tuple(outputs)),))
    try:
        listed = write_initial(folder, tuple(functions) or (main,))
        shutil.rmtree(folder / LIB, ignore_errors=True)
        shutil.rmtree(folder / RUNTIME, ignore_errors=True)
        staged = [f"{LIB}/{path.name}" for path in stage_libraries(library, copy=True)]
        copied = [*runtime_libraries(device_of(device).name)] if with_runtime else []
        if with_libraries:
            copied += _needed(library, device)
        runtime = _copied(folder, copied)
        weights = [f"{WEIGHTS}/{path.name}" for path in library.weights]
        files = file_facts(
            folder, [library.path.name, *staged, *runtime, *weights, *files_of(listed)]
        )
        kept = None
        if borrowed_outputs is not None:
            kept = {name: tuple(which) for name, which in borrowed_outputs.items()}
        host = device_of(device).host_target(device)
        manifest = Manifest(
            created=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            model=model,
            library=library.path.name,
            entry=listed[0].variants[-1].entry,
            inputs=tuple(inputs),
            outputs=tuple(outputs),
            functions=listed,
            num_threads=context.num_threads,
            denormals=device_of(device).denormals(context),
            architecture=device_of(device).machine(device),
            system=platform.system(),
            cpu_flags=cpu_flags_of(host),
            **device_of(device).manifest_fields(device),
            tvm_version=tvm.__version__,
            tvm_ffi_version=tvm_ffi.__version__,
            backend_versions={str(k): str(v) for k, v in versions.items()},
            shared_libraries=tuple(
                ShippedLibrary(one.file, one.sha256) for one in files if one.file in staged
            ),
            required_libraries=tuple(
                RequiredLibrary(needed.soname, needed.version, needed.package)
                for needed in library.required
            ),
            runtimes=dict(library.runtimes),
            files=files,
            borrowed_outputs=kept,
            memory=memory,
            schema_version=(
                ROWS_SCHEMA_VERSION if any(one.rows for one in listed) else SCHEMA_VERSION
            ),
        )
        (folder / REPORT).write_text(report.to_json() + "\n", encoding="utf-8")
        manifest.write(folder)
    except OSError as err:
        raise OutputError(
            f"cannot write bundle '{folder}': {err.strerror}", value=str(folder)
        ) from err
    return folder


def _needed(library: CompiledLibrary, device: tvm.target.Target) -> list[Path]:
    """What is needed on the machine that it runs on, but for drivers and the system's own."""
    # TVM's own runtime for a device needs something, too.
    every = (*device_of(device).required_libraries(), *library.required)
    needed = {one.soname: one for one in every}
    places = {one.soname: one.path for one in needed.values()}
    places |= {path.name: path for one in needed.values() for path in one.companions}
    return list(places.values())


def _copied(folder: Path, libraries: Sequence[Path]) -> list[str]:
    """Libraries under the names that they are loaded by, as the manifest lists them."""
    if libraries:
        (folder / RUNTIME).mkdir()
    for path in libraries:
        shutil.copy2(path, folder / RUNTIME / path.name)
    return [f"{RUNTIME}/{path.name}" for path in libraries]
