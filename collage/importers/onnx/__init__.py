"""ONNX: shapes made concrete, shape computations folded, then TVM's importer, mended or refused.

``model`` is the importer; ``shapes`` and ``fold`` prepare the graph, ``support`` names all
operators that cannot be imported at once, and ``converter`` stands in where TVM's converters err.
"""
