"""The log of measurements: records, what names them, and where they are kept.

A :class:`Record` is a cost with everything that was seen; its :class:`RecordKey` holds all that the
measurement depends on, made by a :class:`KeyMaker` (of whole models: :class:`ModuleKeys`). A
:class:`Database` keeps them: in a file of lines, :class:`JsonLinesDatabase`.
"""

from collage.cost.database._base import Database, LogProblem
from collage.cost.database.jsonl import JsonLinesDatabase
from collage.cost.database.keys import KeyMaker, ModuleKeys
from collage.cost.database.record import Record, RecordKey

__all__ = [
    "Database",
    "JsonLinesDatabase",
    "KeyMaker",
    "LogProblem",
    "ModuleKeys",
    "Record",
    "RecordKey",
]
