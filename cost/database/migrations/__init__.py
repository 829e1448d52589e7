"""Alembic migrations of a log in a database; see :mod:`collage.cost.database.schema`.

Nothing is exported: Alembic reads the files of ``versions``.
"""

__all__: list[str] = []
