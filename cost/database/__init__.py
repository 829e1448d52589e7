"""The log of measurements: records, what names them, and where they are kept.

A :class:`Record` is a cost with everything that was seen; its :class:`RecordKey` holds all that the
measurement depends on, made by a :class:`KeyMaker` (of whole models: :class:`ModuleKeys`). A
:class:`Database` keeps them: in a file of lines, :class:`JsonLinesDatabase`, or in one that a team
shares, :class:`SqlDatabase`; :func:`open_database` tells which of them is meant.
"""

from typing import TYPE_CHECKING

from collage._on_demand import on_demand
from collage.cost.database._base import Database, LogProblem
from collage.cost.database.jsonl import JsonLinesDatabase
from collage.cost.database.keys import KeyMaker, ModuleKeys
from collage.cost.database.opening import log_place, open_database
from collage.cost.database.record import Record, RecordKey

if TYPE_CHECKING:
    from collage.cost.database.sql import SqlDatabase

__all__ = [
    "Database",
    "JsonLinesDatabase",
    "KeyMaker",
    "LogProblem",
    "ModuleKeys",
    "Record",
    "RecordKey",
    "SqlDatabase",
    "log_place",
    "open_database",
]


# On demand: it needs SQLAlchemy.
__getattr__, __dir__ = on_demand(__name__, {"sql": ("SqlDatabase",)})
