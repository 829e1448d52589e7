"""What an optimization returns."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

import tvm
from tvm import relax

from collage.backends.compile import build_executable
from collage.backends.contract import BuildContext, TargetSet
from collage.backends.contract.errors import OutputError
from collage.backends.link import CompiledLibrary
from collage.backends.storage import OwnFolder
from collage.backends.toolchain.weight_files import link_or_copy
from collage.bundle import FunctionEntry, borrowed_outputs, filling, write_bundle
from collage.bundle.folder import WEIGHTS
from collage.bundle.signature import MAIN
from collage.end_to_end import memory_of
from collage.report import Report, brief, notebook_frame, write_html
from collage.search.partitioning import Partitioning
from collage.tensor_info import TensorInfo

LIBRARY = "model.so"
REPORT_HTML = "report.html"


@dataclass(frozen=True)
class Result:
    """The fastest partitioning found, compiled.

    Attributes
    ----------
    module : tvm.IRModule
        The partitioned module: ordinary Relax BYOC, printable and savable.
    partitioning : Partitioning
        Which backend runs which operators.
    report : Report
        Costs, alternatives and why-nots.
    targets : TargetSet
        What was searched over: a sequence, TVM's own target first.
    inputs, outputs : tuple of TensorInfo
        Of the function; of several, the first.
    functions : mapping of str to Result
        Of a model with several public functions, or several buckets of shapes, the result of each.
        What is said here of partitioning and report is then that of the first function, the
        largest bucket, while module and library hold all.
    entries : tuple of FunctionEntry
        What they take and give, as the bundle's manifest lists it.
    alternatives : mapping of str to tvm.IRModule
        The partitioned modules that were compared end to end, the chosen one among them, by name:
        ``search``, ``greedy``, ``single:<backend>``. Those that do not run are missing.

    Examples
    --------
    >>> import collage
    >>> import onnx.parser
    >>> net = onnx.parser.parse_model(
    ...     '''<ir_version: 8, opset_import: ["" : 17]>
    ...     net (float[1, 8] x) => (float[1, 8] y) { y = Relu(x) }'''
    ... )
    >>> result = collage.optimize(net, ["llvm"])
    >>> [(x.name, x.shape, x.dtype) for x in result.inputs]
    [('x', (1, 8), 'float32')]
    >>> sorted(path.name for path in result.export("net.bundle").iterdir())
    ['lib', 'manifest.json', 'model.so', 'report.html', 'report.json']
    """

    model: str
    module: tvm.IRModule
    partitioning: Partitioning
    report: Report
    targets: TargetSet
    inputs: tuple[TensorInfo, ...]
    outputs: tuple[TensorInfo, ...]
    library: CompiledLibrary
    context: BuildContext
    versions: Mapping[str, str]
    _folder: OwnFolder = field(repr=False)
    functions: Mapping[str, Result] = field(default_factory=dict, repr=False)
    entries: tuple[FunctionEntry, ...] = ()
    alternatives: Mapping[str, tvm.IRModule] = field(default_factory=dict, repr=False)
    _libraries: Mapping[str, Callable[[], CompiledLibrary]] = field(
        default_factory=dict, repr=False
    )
    _exported: list[Path] = field(default_factory=list, repr=False)

    def __repr__(self) -> str:
        return "\n".join([brief(self.report), f"  {self._whereabouts()}"])

    def _repr_html_(self) -> str:
        """The report, in a notebook."""
        return notebook_frame(self.report)

    def _whereabouts(self) -> str:
        if not self._exported:
            return "not exported yet: export(folder) writes a bundle"
        return f"exported to {', '.join(map(str, self._exported))}"

    @cached_property
    def executable(self) -> relax.VMExecutable:
        """The executable in memory, before linking; build it into a library with :meth:`export`."""
        return build_executable(self.module, self.targets, self.context)

    def alternative(self, name: str) -> Result:
        """The same model in one of the :attr:`alternatives`, compiled, to compare or to export.

        Its report is still that of the choice.

        Raises
        ------
        KeyError
            When there is none of that name.
        """
        return replace(
            self,
            module=self.alternatives[name],
            library=self._libraries[name](),
            _exported=[],
        )

    def export(
        self, folder: str | Path, *, with_runtime: bool = False, with_libraries: bool = False
    ) -> Path:
        """Write the deployable bundle: ``model.so``, ``lib/``, ``manifest.json``, the report.

        Parameters
        ----------
        folder : path
            New, empty, or an earlier bundle, which is replaced.
        with_runtime : bool
            Whether TVM's runtime libraries are copied into ``runtime/``, so that a program without
            Python needs nothing besides, see :doc:`/deploy`.
        with_libraries : bool
            Whether libraries that backends need and do not bring along are copied there too:
            CUDA's, so that the machine needs nothing but the driver.

        Returns
        -------
        Path
            The folder.

        Raises
        ------
        OutputError
            When it cannot be written.
        """
        folder = Path(folder)
        with filling(folder) as partial:
            place = partial / LIBRARY
            try:
                shutil.copyfile(self.library.path, place)
                place.chmod(0o755)
                weights = [partial / WEIGHTS / path.name for path in self.library.weights]
                if weights:
                    (partial / WEIGHTS).mkdir()
                for source, copied in zip(self.library.weights, weights, strict=True):
                    link_or_copy(source, copied)
            except OSError as err:
                raise OutputError(f"cannot write '{place}': {err.strerror}", value=place) from err
            write_bundle(
                partial,
                replace(self.library, path=place, weights=tuple(weights)),
                model=self.model,
                inputs=self.inputs,
                outputs=self.outputs,
                functions=self.entries,
                context=self.context,
                versions=self.versions,
                device=self.targets.native.device,
                report=self.report,
                borrowed_outputs=borrowed_outputs(self.module, self._names()),
                memory=memory_of(self.module, self.targets, self._searched(), self.context),
                with_runtime=with_runtime,
                with_libraries=with_libraries,
            )
            write_html(self.report, partial / REPORT_HTML)
        if folder not in self._exported:
            self._exported.append(folder)
        return folder

    def _searched(self) -> list[str]:
        """Of all functions that were searched over: where data choose, the parts of one."""
        return [*self._names(), *self.functions]

    def _names(self) -> list[str]:
        """Of all functions in the library that can be called."""
        return [variant.entry for entry in self.entries for variant in entry.variants] or [MAIN]
