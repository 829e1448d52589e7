"""Folders of processes that were killed are swept by the next one; those of the living stay."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from collage.backends.contract.errors import OutputError
from collage.backends.storage import OwnFolder, scratch_parent

HOLD = (
    "import sys, time; from pathlib import Path;"
    "from collage.backends.storage import OwnFolder;"
    "own = OwnFolder(Path(sys.argv[1])); (own.path / 'file').write_text('x');"
    "print(own.path, flush=True); time.sleep(600)"
)


def holder(parent: Path) -> tuple[subprocess.Popen[str], Path]:
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(parent)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    return process, Path(process.stdout.readline().strip())


def test_what_a_killed_process_left_goes_and_what_others_have_stays(tmp_path: Path) -> None:
    parent = tmp_path / "scratch"
    (dead, left), (alive, kept) = holder(parent), holder(parent)
    try:
        dead.kill()
        dead.wait()
        assert (left / "file").exists(), "nobody was there to remove it"
        with OwnFolder(parent) as own:
            assert not left.exists() and (kept / "file").exists() and own.path.is_dir()
            os.kill(alive.pid, signal.SIGSTOP)
            with OwnFolder(parent):
                assert (kept / "file").exists(), "who is stopped lives"
    finally:
        for process in (dead, alive):
            process.kill()
            process.wait()
    OwnFolder(parent).remove()
    assert not parent.exists(), "the last one takes the parent along"


def test_it_goes_with_the_last_who_refers_to_it(tmp_path: Path) -> None:
    own = OwnFolder(tmp_path / "scratch")
    path = own.path
    del own
    assert not path.exists()


def test_many_at_once_do_not_sweep_each_other(tmp_path: Path) -> None:
    found: list[bool] = []

    def work() -> None:
        for _ in range(20):
            with OwnFolder(tmp_path / "scratch") as own:
                (own.path / "file").write_text("x")
                found.append((own.path / "file").exists())

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 160 and all(found)
    assert not (tmp_path / "scratch").exists()


def test_a_parent_that_others_may_write_to_is_refused(tmp_path: Path) -> None:
    parent = tmp_path / "scratch"
    parent.mkdir()
    parent.chmod(0o777)
    with pytest.raises(OutputError, match="others may write"):
        OwnFolder(parent)
    (tmp_path / "link").symlink_to(tmp_path)
    with pytest.raises(OutputError, match="others may write"):
        OwnFolder(tmp_path / "link")
    (tmp_path / "a file").write_text("x")
    with pytest.raises(OutputError, match="cannot make a scratch folder"):
        OwnFolder(tmp_path / "a file" / "scratch")


def test_each_user_and_machine_has_a_parent_of_its_own() -> None:
    assert str(os.getuid()) in scratch_parent().name
