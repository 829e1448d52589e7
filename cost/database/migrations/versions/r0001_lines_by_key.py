"""Lines, by the digest of their key."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    op.create_table(
        "collage_log",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer, "sqlite"), primary_key=True),
        sa.Column("kind", sa.String(11), nullable=False),
        sa.Column("key", sa.LargeBinary, nullable=False),
        sa.Column("digest", sa.LargeBinary, nullable=False),
        sa.Column("occurrence", sa.Integer, nullable=False),
        sa.Column("line", sa.Text, nullable=False),
        sa.UniqueConstraint("digest", "occurrence", name="collage_log_once"),
    )
    op.create_index("collage_log_key", "collage_log", ["key", "id"])
