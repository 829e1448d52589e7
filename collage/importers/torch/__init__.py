"""PyTorch's exported programs, through TVM's importer with converters of ours where it errs.

:func:`import_exported_program` is the way a program takes; :func:`export_module` makes one of a
module in memory, and :class:`TorchProgramImporter` reads ``.pt2`` files (``archive``).
``translate`` puts the converters of ``operators`` in place. PyTorch is imported by who has a
program, not before.
"""

from collage.importers.torch.exporting.module import (
    ExampleInputs,
    ExportedModule,
    export_module,
    is_module,
)
from collage.importers.torch.program import (
    TorchProgramImporter,
    import_exported_module,
    import_exported_program,
    is_exported_program,
)

__all__ = [
    "ExampleInputs",
    "ExportedModule",
    "TorchProgramImporter",
    "export_module",
    "import_exported_module",
    "import_exported_program",
    "is_exported_program",
    "is_module",
]
