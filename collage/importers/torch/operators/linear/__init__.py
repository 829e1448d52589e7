"""Products, attention, and what is made of matrices.

Nothing is exported: their tables are part of :data:`collage.importers.torch.operators.CONVERTERS`.
"""

__all__: list[str] = []
