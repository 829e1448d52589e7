"""Run by Alembic, in the transaction of whoever asks for a migration."""

from __future__ import annotations

from alembic import context

from collage.cost.database.schema import VERSION_TABLE

context.configure(
    connection=context.config.attributes["connection"],
    version_table=VERSION_TABLE,
    # The caller's transaction, which it commits as a whole.
    transactional_ddl=True,
)
with context.begin_transaction():
    context.run_migrations()
