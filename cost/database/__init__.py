"""The log of measurements: records, what names them, and the file that keeps them.

A :class:`Record` is a cost with everything that was seen; its :class:`RecordKey` holds all that the
measurement depends on, made by a :class:`KeyMaker` (of whole models: :class:`ModuleKeys`). A
:class:`Database` reads and appends them as JSON Lines.
"""

from collage.cost.database.jsonl import Database, LogProblem
from collage.cost.database.keys import KeyMaker, ModuleKeys
from collage.cost.database.record import Record, RecordKey

__all__ = ["Database", "KeyMaker", "LogProblem", "ModuleKeys", "Record", "RecordKey"]
