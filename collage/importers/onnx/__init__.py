"""ONNX: shapes made concrete, shape computations folded, then TVM's importer, mended or refused.

:func:`import_onnx` is the way a graph takes, :class:`OnnxImporter` reads files. ``shapes``,
``fold`` and ``known`` prepare the graph, ``functions`` writes out what is defined by other
operators, ``straight`` makes a straight line of it, and ``support`` names all operators that
cannot be imported at once. ``converter`` drives TVM's converters, and in their place those of
``operators`` where TVM's err or are missing.
"""

from collage.importers.onnx.model import OnnxImporter, import_onnx
from collage.importers.onnx.objects import onnx_model_of

__all__ = ["OnnxImporter", "import_onnx", "onnx_model_of"]
