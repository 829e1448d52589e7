"""Operators over windows and borders: pools, interpolations, pads.

Nothing is exported: their tables are part of :data:`collage.importers.torch.operators.CONVERTERS`.
"""

__all__: list[str] = []
