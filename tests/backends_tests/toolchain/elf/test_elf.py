"""Files of the linker's: held against what its own programs say of them."""

from __future__ import annotations

import ctypes
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tvm

from collage.backends.compile import build_executable
from collage.backends.contract import BackendTarget, BuildContext
from collage.backends.contract.errors import CompileError
from collage.backends.link import link
from collage.backends.toolchain import compiling, native
from collage.backends.toolchain.elf.import_library import import_library
from collage.backends.toolchain.elf.shared_library import shared_library
from collage.testing import graph
from tests.backends_tests.toolchain.objects import symbols, write


def share(source: str, output: Path, *flags: str) -> Path:
    text = write(output.with_suffix(".c"), source)
    compiling.run_tool(["gcc", "-shared", "-fPIC", *flags, "-o", str(output), str(text)])
    return output


# What libraries define and ask for.


@pytest.mark.parametrize("library", [sys.executable, tvm.libinfo.__file__, np.__file__])
def test_a_file_that_is_no_library_is_said_to_be_none(library: str, tmp_path: Path) -> None:
    cut = tmp_path / "cut.so"
    cut.write_bytes(Path(library).read_bytes()[:200])
    with pytest.raises(CompileError, match=r"cut\.so' is no 64-bit little-endian library"):
        shared_library(cut)


def test_names_are_those_that_nm_prints(tmp_path: Path) -> None:
    source = (
        "extern int asked_for(void); extern int maybe(void) __attribute__((weak));\n"
        "static int own(void) { return 1; } int given = 2;\n"
        'int twice(void) __asm__("twice");\n'
        "int twice(void) { return own() + asked_for() + (maybe ? maybe() : 0); }"
    )
    library = share(source, tmp_path / "liba.so", "-Wl,-soname,liba.so.1")
    found = shared_library(library)
    defined = symbols(library, "--dynamic", "--defined-only")
    undefined = symbols(library, "--dynamic", "--undefined-only")
    assert found.defined.keys() == {name.partition("@")[0] for name in defined}
    assert found.undefined.keys() == {name.partition("@")[0] for name in undefined}
    assert {"given", "twice"} <= found.defined.keys()
    assert {"asked_for", "maybe"} <= found.undefined.keys()
    assert (found.soname, found.has_versions) == ("liba.so.1", False)
    content = library.read_bytes()
    for name, at in (found.defined | found.undefined).items():
        assert content[at : at + len(name) + 1] == name.encode() + b"\0"


def test_a_library_that_changed_is_read_anew(tmp_path: Path) -> None:
    library = share("int before;", tmp_path / "liba.so")
    assert "before" in shared_library(library).defined
    share("int after;", library)
    assert "after" in shared_library(library).defined


# Linking against names alone.


def test_what_is_linked_against_a_stand_in_runs_with_the_library(
    context: BuildContext, tmp_path: Path
) -> None:
    folder = tmp_path / "lib"
    folder.mkdir()
    library = share("int answer(void) { return 42; }", folder / "a.so", "-Wl,-soname,liba.so.7")
    stand_in = import_library(library, context)
    assert stand_in != library and import_library(library, context) == stand_in
    user = share(
        "int answer(void); int twice(void) { return 2 * answer(); }",
        tmp_path / "libuser.so",
        *("-Wl,-rpath,$ORIGIN/lib", "-Wl,--no-as-needed", str(stand_in)),
    )
    assert "liba.so.7" in compiling.run_tool(["readelf", "-dW", str(user)])
    library.rename(folder / "liba.so.7")
    assert ctypes.CDLL(str(user)).twice() == 84


def test_versions_of_symbols_and_libraries_without_a_name_are_the_linker_s(
    context: BuildContext, tmp_path: Path
) -> None:
    nameless = share("int answer;", tmp_path / "libb.so")
    assert import_library(nameless, context) == nameless
    script = write(tmp_path / "versions", "ONE { global: answer; };")
    flags = (f"-Wl,--version-script={script}", "-Wl,-soname,libc7.so")
    versioned = share("int answer;", tmp_path / "libc7.so", *flags)
    assert shared_library(versioned).has_versions
    assert import_library(versioned, context) == versioned


def test_no_compiler_is_started_to_link(
    context: BuildContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    """TVM writes an empty source in C where all is a library's."""
    target = BackendTarget.of("openblas", tvm.target.Target("llvm"))
    mod = graph([(4, 8), (8, 4)], lambda _, x, w: tvm.relax.op.matmul(x, w))
    mod = tvm.relax.transform.FuseOpsByPattern(
        tvm.relax.backend.get_patterns_with_prefix("openblas."), annotate_codegen=True
    )(mod)
    executable = build_executable(mod, [target], context)
    commands: list[list[str]] = []
    start = subprocess.Popen.__init__

    def noted(
        self: subprocess.Popen[str], command: list[str], *args: object, **more: object
    ) -> None:
        commands.append([str(word) for word in command])
        start(self, command, *args, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(subprocess.Popen, "__init__", noted)
    output = context.work_dir / "model.so"
    link(executable, [target], output, context)
    (linking,) = [command for command in commands if str(output) in command]
    assert not [word for word in linking if word.endswith(".c")]


# Constants.


def test_an_object_of_constants_is_as_an_assembler_makes_it(
    context: BuildContext, tmp_path: Path
) -> None:
    constants = {"first": np.arange(5, dtype=np.float32), "none": np.zeros(0, np.int8)}
    made = native.constant_object(constants, tmp_path / "made.o", context)
    text = "".join(
        f'.section .rodata.{name},"aG",@progbits,{name},comdat\n.weak {name}\n.hidden {name}\n'
        f".type {name}, @object\n.balign 64\n{name}: .byte {','.join(map(str, data))}\n"
        f".size {name}, {len(data)}\n"
        for name, data in ((n, list(a.tobytes()) or [0]) for n, a in constants.items())
    )
    source = write(tmp_path / "wanted.s", text + '.section .note.GNU-stack,"",@progbits\n')
    wanted = compiling.compile_object(source, tmp_path / "wanted.o", context)

    def read(path: Path) -> tuple[str, list[tuple[str, ...]]]:
        options = ["readelf", "--wide", "--section-groups", "-x", ".rodata.first", str(path)]
        table = [
            tuple(line.split()[2:])
            for line in compiling.run_tool(["readelf", "-sW", str(path)]).splitlines()
            if line.endswith(("first", "none"))
        ]
        lines = compiling.run_tool(options).splitlines()
        return "\n".join(line.split("]")[-1] for line in lines), [row[:4] for row in table]

    assert read(made) == read(wanted)


def test_more_constants_than_sections_have_numbers(context: BuildContext, tmp_path: Path) -> None:
    constants = {f"c{number}": np.array([number]) for number in range(20_000)}
    data = native.constant_object(constants, tmp_path / "many.o", context)
    text = "".join(f"extern const long c{n}[];" for n in (0, 16_001, 19_999))
    text += "long sum(void) { return c0[0] + c16001[0] + c19999[0]; }"
    code = compiling.compile_object(write(tmp_path / "s.c", text), tmp_path / "s.o", context)
    library = tmp_path / "libs.so"
    compiling.run_tool(["gcc", "-shared", "-o", str(library), str(code), str(data)])
    assert ctypes.CDLL(str(library)).sum() == 36_000
