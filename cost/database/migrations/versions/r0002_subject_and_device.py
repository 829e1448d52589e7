"""What a line is about and what it was found on, so that both can be asked for."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"

_PAGE = 1000


def upgrade() -> None:
    op.add_column("collage_log", sa.Column("subject", sa.LargeBinary))
    op.add_column("collage_log", sa.Column("device", sa.LargeBinary))
    _fill(op.get_bind())
    op.create_index("collage_log_subject", "collage_log", ["subject", "id"])
    op.create_index("collage_log_device", "collage_log", ["kind", "device", "id"])


def _fill(connection: sa.Connection) -> None:
    log = sa.table("collage_log", *map(sa.column, ("id", "kind", "line", "subject", "device")))
    query = sa.select(log.c.id, log.c.kind, log.c.line).order_by(log.c.id).limit(_PAGE)
    change = (
        sa.update(log)
        .where(log.c.id == sa.bindparam("row"))
        .values(
            subject=sa.bindparam("subject", type_=sa.LargeBinary),
            device=sa.bindparam("device", type_=sa.LargeBinary),
        )
    )
    position = 0
    while rows := connection.execute(query.where(log.c.id > position)).all():
        found = [(row.id, _found_by(row.kind, json.loads(row.line))) for row in rows]
        connection.execute(change, [{"row": i, "subject": s, "device": d} for i, (s, d) in found])
        position = rows[-1].id


def _found_by(kind: str, value: dict[str, Any]) -> tuple[bytes | None, bytes | None]:
    """As it was at this revision, whatever becomes of it later."""
    if kind == "measurement":
        device = _digest("device", value["device"], value["driver"])
        return _digest("workload", value["workload"]), device
    if kind == "tuning":
        question = json.dumps([value["backend"], value["schema"], value["key"]], sort_keys=True)
        capability = value["device"].get("compute_capability")
        known = isinstance(capability, int)
        device_digest = _digest("compute_capability", capability) if known else None
        return hashlib.sha256(question.encode()).digest(), device_digest
    return None, None


def _digest(*parts: object) -> bytes:
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).digest()
