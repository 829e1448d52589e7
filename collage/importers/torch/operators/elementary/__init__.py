"""Operators on one element at a time, in the type and the digits that PyTorch computes them in.

Nothing is exported: their tables are part of :data:`collage.importers.torch.operators.CONVERTERS`.
"""

__all__: list[str] = []
