"""The command line's manners: help with examples, one-line errors, exit codes, progress."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import typer
from rich.console import Console
from typer.testing import CliRunner

from collage import __version__
from collage.backends.contract.errors import CompileError, InputError, LogError, ShapeError
from collage.backends.contract.registry import backend_names, get_backend
from collage.cli import app, main
from collage.cli._run import read_inputs
from collage.cli.terminal.errors import Interrupted, run
from collage.cli.terminal.options import check_log, parse_shapes
from collage.cli.terminal.progress import LiveProgress, PlainProgress, progress_display
from collage.cli.terminal.samples import read_sample
from collage.cost.progress import ProgressEvent, Workforce

COMMANDS = [
    *("optimize", "run", "bench", "backends", "coverage", "workers", "explain", "stability"),
    "precompile",
    *("log", "log summary", "log merge"),
]


def _collage(*arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "collage", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=cwd)


@pytest.mark.parametrize("content", ["cut off", "no archive", "an array", "objects"])
def test_a_file_of_inputs_that_is_none_is_one_line(content: str, tmp_path: Path) -> None:
    path = tmp_path / "sample.npz"
    np.savez_compressed(path, x=np.random.default_rng().random(1000))
    whole = path.read_bytes()
    if content == "cut off":
        path.write_bytes(whole[: len(whole) // 2])
    elif content == "no archive":
        path.write_bytes(b"PK\x03\x04 and nothing of what should follow")
    elif content == "an array":
        np.save(tmp_path / "x.npy", np.ones(3))
        path = tmp_path / "x.npy"
    else:
        np.savez(path, x=np.array([{}, 1], dtype=object))
    with pytest.raises(InputError, match="cannot read input"):
        read_sample(path)


@pytest.mark.parametrize("place", range(40, 200, 8))
def test_bytes_of_a_sample_that_were_changed_are_one_line(place: int, tmp_path: Path) -> None:
    path = tmp_path / "sample.npz"
    np.savez_compressed(path, x=np.random.default_rng(place).random(1000))
    content = bytearray(path.read_bytes())
    content[place : place + 100] = bytes(100)
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"no whole \.npz file"):
        read_sample(path)


@pytest.mark.parametrize("place", range(10, 80, 6))
def test_an_array_whose_head_was_changed_is_one_line(place: int, tmp_path: Path) -> None:
    path = tmp_path / "x.npy"
    np.save(path, np.ones((3, 4)))
    content = bytearray(path.read_bytes())
    content[place : place + 40] = bytes(40)
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"no \.npy file"):
        read_inputs([str(path)], ["x"])


@pytest.mark.parametrize("folder", [".", "net.onnx"])
def test_a_folder_in_a_models_place_is_one_line(folder: str, tmp_path: Path) -> None:
    (tmp_path / "net.onnx").mkdir()
    found = _collage("optimize", folder, "-t", "llvm", cwd=tmp_path)
    assert found.returncode == 2
    assert found.stderr == f"error: '{folder}' is a folder, not a model file\n"
    assert [path.name for path in tmp_path.iterdir()] == ["net.onnx"]


@pytest.mark.parametrize("command", COMMANDS)
def test_help_shows_an_example(command: str) -> None:
    result = CliRunner().invoke(app, [*command.split(), "--help"])
    assert result.exit_code == 0
    _, _, epilogue = result.output.partition("Example")
    assert f"collage {command.removesuffix(' summary')}" in epilogue


def test_version_is_told_without_a_command() -> None:
    done = _collage("--version")
    assert (done.returncode, done.stdout) == (0, f"collage {__version__}\n")
    done = _collage()
    assert done.returncode == 2 and "optimize" in done.stdout
    assert done.stderr == "error: no command was given (see 'collage --help')\n"


def test_help_lists_every_command_and_needs_no_compiler() -> None:
    done = _collage("--help")
    assert done.returncode == 0
    for command in COMMANDS:
        assert command.split()[0] in done.stdout
    code = "import sys, collage.cli; sys.exit('tvm' in sys.modules or 'jinja2' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=60, check=False).returncode == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["optimise"], "No such command 'optimise'"),
        (["bench"], "Missing argument 'BUNDLE'"),
        (["bench", "x", "--repeat", "0"], "Invalid value for '--repeat'"),
        (["bench", "/nowhere"], "'/nowhere' is no bundle"),
        (["explain", "/nowhere"], "there is no bundle or log '/nowhere'"),
        (["optimize", "m.onnx"], "there is no file 'm.onnx'"),
        (["optimize", "m.onnx", "-t", "llvm", "-o", "b"], "there is no file 'm.onnx'"),
        (["optimize", "m.onnx", "-t", "llvm", "-o", "b", "--shape", "x=1,a"], "shape 'x=1,a'"),
    ],
)
def test_mistakes_get_one_line_and_exit_code_2(
    arguments: list[str], message: str, tmp_path: Path
) -> None:
    done = _collage(*arguments, cwd=tmp_path)
    assert done.returncode == 2
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert line.startswith("error: ")
    assert message in line


def test_output_is_checked_before_anything_is_read(tmp_path: Path) -> None:
    model, taken = tmp_path / "m.onnx", tmp_path / "taken"
    model.write_bytes(b"no model at all")
    taken.write_text("a file where the folder should be")
    done = _collage("optimize", str(model), "-t", "llvm", "-o", str(taken / "bundle"))
    assert done.returncode == 2
    assert f"cannot write to '{taken / 'bundle'}'" in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("extra", "message"),
    [
        (["--replay"], "--replay needs --log FILE"),
        (["--replay", "--log", "none.jsonl"], "there is no log 'none.jsonl'"),
        (["--log", "no/such/folder.jsonl"], "cannot write log 'no/such/folder.jsonl'"),
    ],
)
def test_log_is_checked_before_the_search(extra: list[str], message: str, tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_bytes(b"x")
    done = _collage("optimize", "m.onnx", "-t", "llvm", "-o", "b", *extra, cwd=tmp_path)
    assert done.returncode == 2
    assert message in done.stderr
    assert not (tmp_path / "b").exists()


def _app_that(error: BaseException) -> typer.Typer:
    app = typer.Typer()

    @app.command()
    def fail(debug: bool = False) -> None:
        raise error

    return app


@pytest.mark.parametrize(
    ("error", "code", "line"),
    [
        (LogError("no such\nlog"), 2, r"error: no such\nlog"),
        (CompileError("g++ failed"), 1, "error: g++ failed"),
        (Interrupted("interrupted; kept in x"), 130, "interrupted; kept in x"),
        (KeyboardInterrupt(), 130, "interrupted"),
        (ValueError("odd"), 1, "error: unexpected ValueError: odd (--debug prints the traceback)"),
    ],
)
def test_every_error_has_its_code_and_its_line(
    error: BaseException, code: int, line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(_app_that(error), []) == code
    assert capsys.readouterr().err == f"{line}\n"


def test_debug_prints_the_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(_app_that(LogError("no such log")), ["--debug"]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].startswith("Traceback")
    assert lines[-1] == "error: no such log"


def test_backends_lists_what_the_registry_has(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["backends", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["backends"]
    assert [row["name"] for row in rows] == backend_names()
    for row in rows:
        available = get_backend(row["name"]).probe()
        assert row["usable"] == available.usable
        assert row["versions"] == dict(available.versions)
        assert row["usable"] or row["remedy"]
    assert main(["backends"]) == 0
    table = capsys.readouterr().out
    assert all(row["name"] in table for row in rows)
    attributes = [a for row in rows for a in row["attributes"]]
    assert all(f"{a['name']}: {a['type']} = {a['default']!r}" in table for a in attributes)


def test_shapes_are_read() -> None:
    assert parse_shapes(["x=1,3,224,224", "a=b=2", "s="]) == {
        "x": (1, 3, 224, 224),
        "a=b": (2,),
        "s": (),
    }


@pytest.mark.parametrize("text", ["x", "=1,2", "x=1,,2", "x=-1", "x=1.5", "x=²"])
def test_ill_formed_shapes_are_refused(text: str) -> None:
    with pytest.raises(ShapeError, match="shape '"):
        parse_shapes([text])


def test_shape_given_twice_is_refused() -> None:
    with pytest.raises(ShapeError, match="twice"):
        parse_shapes(["x=1", "x=2"])


def test_log_check_keeps_what_is_there(tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    log.write_text('{"format": 1}\n')
    check_log(log)
    assert log.read_text() == '{"format": 1}\n'
    with pytest.raises(LogError, match="Is a directory"):
        check_log(tmp_path)


def test_inputs_by_name_and_by_position(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.arange(3))
    np.save(tmp_path / "y=1.npy", np.arange(4))
    x, odd = str(tmp_path / "x.npy"), str(tmp_path / "y=1.npy")
    positional, named = read_inputs([x, odd, f"mask={x}"], ["ids", "mask"])
    assert [a.size for a in positional] == [3, 4]
    assert {k: v.size for k, v in named.items()} == {"mask": 3}
    with pytest.raises(InputError, match="twice"):
        read_inputs([f"mask={x}", f"mask={x}"], ["mask"])


def test_pickled_inputs_are_never_loaded(tmp_path: Path) -> None:
    path = tmp_path / "evil.npy"
    np.save(path, np.array([{"a": 1}], dtype=object), allow_pickle=True)
    with pytest.raises(InputError, match=r"no \.npy file of plain numbers"):
        read_inputs([str(path)], ["x"])
    with pytest.raises(InputError, match="No such file"):
        read_inputs([str(tmp_path / "none.npy")], ["x"])


def test_plain_progress_is_sparse_and_tells_the_time_left() -> None:
    lines: list[str] = []
    now = 0.0
    progress = PlainProgress(lines.append, clock=lambda: now)
    for done in range(101):
        progress(ProgressEvent("measure", done, 100, f"workload {done}"))
        now += 1.0
    progress(ProgressEvent("end to end", 0, 0))
    assert len(lines) == 12
    assert lines[0] == "[measure] 0/100 workload 0"
    assert lines[1] == "[measure] 10/100 workload 10 (about 90 s left)"
    assert lines[-2] == "[measure] 100/100 workload 100"
    assert lines[-1] == "[end to end]"


def test_plain_progress_of_stages_that_take_turns_is_sparse_too() -> None:
    lines: list[str] = []
    now = 0.0
    progress = PlainProgress(lines.append, clock=lambda: now)
    for done in range(1, 200):
        progress(ProgressEvent("build", done, done))
        progress(ProgressEvent("measure", done - 1, done))
        now += 0.05
    assert lines[:2] == ["[build] 1/1", "[measure] 0/1"]
    assert len(lines) <= 2 + 10


def test_plain_progress_keeps_both_ends_of_a_long_message() -> None:
    lines: list[str] = []
    progress = PlainProgress(lines.append, clock=lambda: 0.0)
    progress(ProgressEvent("measure", 1, 2, f"conv2d {'+ relu ' * 100} on onednn: 1.0 ms"))
    assert len(lines[0]) < 110
    assert lines[0].startswith("[measure] 1/2 conv2d + relu")
    assert lines[0].endswith("on onednn: 1.0 ms")


def test_one_line_says_who_is_at_work_what_waits_how_fast_it_goes_and_how_long_it_takes() -> None:
    now = 0.0
    lines: list[str] = []
    progress = PlainProgress(lines.append, clock=lambda: now)
    progress(ProgressEvent("measure", 2, 100, "relu", Workforce(4, 0, 0, 16)))
    now = 20.0
    progress(ProgressEvent("measure", 42, 100, "conv2d", Workforce(4, 3, 5, 11)))
    now = 50.0
    progress(ProgressEvent("measure", 100, 100, "exp", Workforce(4, 0, 0, 0)))
    assert lines == [
        "[measure] 2/100 relu (0 of 4 workers busy, 16 to build)",
        "[measure] 42/100 conv2d (3 of 4 workers busy, 11 to build, 5 to time, 2.0/s, "
        "about 29 s left)",
        "[measure] 100/100 exp (0 of 4 workers busy, 2.0/s)",
    ]


def test_a_terminal_has_one_line_for_all_workers() -> None:
    shown = Console(file=io.StringIO(), force_terminal=True, width=160)
    with LiveProgress(shown) as progress:
        progress(ProgressEvent("measure", 0, 100, "relu", Workforce(4, 0, 0, 16)))
        progress(ProgressEvent("measure", 40, 100, "conv2d", Workforce(4, 3, 5, 11)))
        progress(ProgressEvent("compile", 0, 3, "search"))
    assert isinstance(shown.file, io.StringIO)
    text = shown.file.getvalue()
    assert "3 of 4 workers busy, 11 to build, 5 to time" in text
    assert text.rpartition("compile")[2].count("workers busy") == 0


def test_a_line_of_progress_is_written_with_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another thread's line came between a line and its end."""
    written: list[str] = []

    class Stream(io.StringIO):
        def write(self, text: str) -> int:
            written.append(text)
            return len(text)

    monkeypatch.setattr(sys, "stderr", Stream())
    with progress_display() as progress:
        progress(ProgressEvent("answer", 1, 1, "single:tvm"))
    assert written == ["[answer] 1/1 single:tvm\n"]
