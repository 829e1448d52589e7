"""Alembic migrations of a log in a database; see :mod:`collage.cost.database.schema`."""
