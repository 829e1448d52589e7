"""Complex numbers, of which Relax has none: real tensors of one axis more.

Nothing is exported: its tables are read where programs are taken apart and translated.
"""

__all__: list[str] = []
