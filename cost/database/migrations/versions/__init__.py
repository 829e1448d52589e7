"""One revision a file, in their order; nothing is exported."""

__all__: list[str] = []
