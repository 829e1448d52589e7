"""Processes of benchmarks: what is said of one that gives no answer."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.timing.child import ChildError, JsonChild

_SLOW = """
import time
from benchmarks.timing.child import serve

def answer(request):
    print("[1.0 s] compile 3/70", flush=True)
    time.sleep(60)

def main(line):
    serve(line, answer)
"""


def test_a_child_that_is_too_slow_has_last_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "slow_child.py").write_text(_SLOW)
    # A child has its parent's path.
    monkeypatch.syspath_prepend(str(tmp_path))
    with (
        JsonChild("slow_child", [], tmp_path / "log") as child,
        pytest.raises(ChildError, match=r"no answer within 8 s.*compile 3/70"),
    ):
        child.ask({}, limit_sec=8)
