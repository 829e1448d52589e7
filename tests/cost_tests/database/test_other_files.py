"""Nothing is appended to a file that is no log; whatever a killed process left is one."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from collage.backends.contract.errors import LogError
from collage.cost.database import open_database
from collage.testing.database_contract import KEY, record_of

OTHER_FILES = {
    # All pairs of bytes: a line feed and a brace among them.
    "model": np.arange(1 << 16, dtype="<u2").tobytes(),
    "notes": b"Buy milk\n{ and bread }\n",
    "settings": b'{\n  "schema": 1\n}\n',
    "list": b"[1, 2]\n",
}


@pytest.mark.parametrize("name", OTHER_FILES)
@pytest.mark.parametrize("read_only", [False, True])
def test_files_of_other_kinds_are_left_as_they_are(
    name: str, read_only: bool, tmp_path: Path
) -> None:
    path = tmp_path / name
    path.write_bytes(OTHER_FILES[name])
    with pytest.raises(LogError, match=f"{name}' is no log: no line of it begins as a record"):
        open_database(path, read_only=read_only)
    assert path.read_bytes() == OTHER_FILES[name]


@pytest.mark.parametrize("found", [b"", b"\n\n", b"{", b'{"sch', b'nonsense\n{"kind": "tuning"}\n'])
def test_what_a_killed_process_left_is_a_log(found: bytes, tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    path.write_bytes(found)
    database = open_database(path)
    assert len(database) == 0
    database.append(record_of())
    assert open_database(path).lookup(KEY) is not None
    assert path.read_bytes().startswith(found)
