"""What the stages found: JSON lines, one a network and stage, the newest of each counts."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

Row = dict[str, Any]
Key = tuple[str, str, str]


def key_of(row: Row) -> Key:
    """Network, stage, and what the stage was told (a form, an architecture, a device)."""
    return row["network"], row["stage"], row["variant"]


class Results:
    """The file, read once and appended to.

    Parameters
    ----------
    path : Path
        A torn last line, of a run that was cut off, is left out.
    """

    def __init__(self, path: Path) -> None:
        self._path, self._lock = path, threading.Lock()
        self.rows: dict[Key, Row] = {}
        if path.exists():
            text = path.read_text(encoding="utf-8")
            if text and not text.endswith("\n"):
                path.write_text(text[: text.rfind("\n") + 1], encoding="utf-8")
            for line in text.splitlines():
                if line.endswith("}"):
                    row = json.loads(line)
                    self.rows[key_of(row)] = row

    def add(self, row: Row) -> None:
        """Keep a row, on the disk at once."""
        with self._lock:
            self.rows[key_of(row)] = row
            with self._path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")

    def of(self, stage: str) -> list[Row]:
        """The rows of a stage, in the order of the zoo's names."""
        return [row for key, row in self.rows.items() if key[1] == stage]
