"""Running compilers, and objects named by what they are made from."""

from __future__ import annotations

import dataclasses
import threading
from pathlib import Path

import pytest

from collage.backends.contract import BuildContext
from collage.backends.contract.errors import CompileError
from collage.backends.toolchain import compiling
from tests.backends_tests.toolchain.objects import symbols, write

# Running tools.


def test_missing_compiler_is_named_with_its_remedy(context: BuildContext, tmp_path: Path) -> None:
    source = write(tmp_path / "a.c", "int a;")
    nowhere = dataclasses.replace(context, cxx="no-such-compiler")
    with pytest.raises(CompileError, match="'no-such-compiler' was not found: install") as caught:
        compiling.compile_object(source, tmp_path / "a.o", nowhere)
    assert caught.value.value == "no-such-compiler"


def test_failed_compilation_carries_all_of_stderr(context: BuildContext, tmp_path: Path) -> None:
    source = write(tmp_path / "bad.cc", "int f() { return first; }\nint g() { return second; }\n")
    with pytest.raises(CompileError) as caught:
        compiling.compile_object(source, tmp_path / "bad.o", context)
    assert "exit status 1" in str(caught.value)
    assert "error: 'first' was not declared" in str(caught.value).replace("‘", "'").replace(
        "’", "'"
    )
    assert "\n" not in str(caught.value)
    assert "first" in caught.value.value
    assert "second" in caught.value.value


def test_tool_runs_where_it_is_told(tmp_path: Path) -> None:
    assert compiling.run_tool(["pwd"], cwd=tmp_path).strip() == str(tmp_path.resolve())


def test_compiler_version_is_one_line() -> None:
    version = compiling.compiler_version("g++")
    assert version
    assert "\n" not in version


# The cache.


def test_same_content_is_compiled_once(context: BuildContext, tmp_path: Path) -> None:
    first = compiling.cached_compilation(
        write(tmp_path / "one" / "a.c", "int a = 1;"), context
    ).run()
    stamp = first.stat().st_mtime_ns
    again = compiling.cached_compilation(
        write(tmp_path / "two" / "a.c", "int a = 1;"), context
    ).run()
    assert again == first
    assert again.stat().st_mtime_ns == stamp
    assert list(first.parent.iterdir()) == [first], "a temporary file was left behind"


def test_anything_that_counts_gives_another_object(context: BuildContext, tmp_path: Path) -> None:
    header = write(tmp_path / "value.h", "#define VALUE 1")
    source = write(tmp_path / "a.c", '#include "value.h"\nint a = VALUE;')
    cxx_source = write(tmp_path / "a.cc", source.read_text())
    objects = [
        compiling.cached_compilation(source, context, depends=[header]).run(),
        compiling.cached_compilation(source, context, ["-DX"], depends=[header]).run(),
        compiling.cached_compilation(source, context, ["-D", "X"], depends=[header]).run(),
        compiling.cached_compilation(cxx_source, context, depends=[header]).run(),
    ]
    write(header, "#define VALUE 2")
    objects.append(compiling.cached_compilation(source, context, depends=[header]).run())
    write(source, '#include "value.h"\nint a = VALUE + 1;')
    objects.append(compiling.cached_compilation(source, context, depends=[header]).run())
    assert len(set(objects)) == len(objects)


def test_failed_compilation_leaves_nothing_in_the_cache(
    context: BuildContext, tmp_path: Path
) -> None:
    source = write(tmp_path / "bad.c", "not c")
    for _ in range(2):
        with pytest.raises(CompileError):
            compiling.cached_compilation(source, context).run()
    assert list((context.cache_dir / "objects").iterdir()) == []


def test_two_at_once_agree_on_one_whole_object(context: BuildContext, tmp_path: Path) -> None:
    source = write(tmp_path / "a.c", "int a = 1;")
    found: list[Path] = []
    threads = [
        threading.Thread(
            target=lambda: found.append(compiling.cached_compilation(source, context).run())
        )
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 4
    assert len(set(found)) == 1
    assert symbols(found[0])["a"] == "D"
