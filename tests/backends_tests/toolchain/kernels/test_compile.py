"""Kernels are compiled once to PTX, whatever source they are in, and then to one fatbin."""

from __future__ import annotations

from pathlib import Path

import pytest

from collage.backends.contract import BuildContext
from collage.backends.toolchain import compiling
from collage.backends.toolchain.kernels.compile import compile_kernels
from tests.machine_code import device_code

pytestmark = pytest.mark.cuda

HEAD = "__device__ float one(float x) { return x + 1.0f; }\n"
ARCH = "sm_90a"


def kernel(name: str) -> str:
    head = f'extern "C" __global__ void {name}(float* x) '
    return head + "{\n  x[threadIdx.x] = sinf(one(x[threadIdx.x]));\n}\n"


def known_kernels(context: BuildContext) -> set[Path]:
    return set((context.cache_dir / "kernels").glob("*.ptx"))


def test_what_another_source_had_is_only_assembled(
    context: BuildContext, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compile_kernels(HEAD + kernel("f") + kernel("g"), context, ARCH)
    known = known_kernels(context)
    assert len(known) == 2

    def run(command: list[str], *args: object, **kwargs: object) -> str:
        assert "--ptx" not in command
        return original(command, *args, **kwargs)

    original = compiling.run_tool
    monkeypatch.setattr(compiling, "run_tool", run)
    fatbin = compile_kernels(HEAD + kernel("g") + "\n" + kernel("f"), context, ARCH)
    assert known_kernels(context) == known
    # As tests of linked libraries look for it: machine code, with both of them.
    place = tmp_path / "kernels.fatbin"
    place.write_bytes(fatbin)
    (image,) = device_code(place)
    assert (image.kind, image.arch) == ("elf", 90)
    assert all(f".text.{name}".encode() in fatbin for name in "fg")


def test_a_source_with_assembly_written_inline_is_taken_apart(
    context: BuildContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As copies are that go past registers where a condition holds."""
    inline = """
  asm volatile(
    "{\\n"
    " .reg .pred p;\\n"
    " setp.ne.u32 p, %0, 0;\\n"
    " @p prefetch.global.L2 [%1];\\n"
    "}\\n" :: "r"((int)(x[0] > 0)), "l"(x));
"""
    f, g = (kernel(name).replace("{\n", "{" + inline, 1) for name in "fg")
    compile_kernels(HEAD + f, context, ARCH)
    commands: list[list[str]] = []

    def run(command: list[str], *args: object, **kwargs: object) -> str:
        commands.append(command)
        return original(command, *args, **kwargs)

    original = compiling.run_tool
    monkeypatch.setattr(compiling, "run_tool", run)
    fatbin = compile_kernels(HEAD + f + g, context, ARCH)
    assert all(f".text.{name}".encode() in fatbin for name in "fg")
    assert ["--ptx" in command for command in commands] == [True, False]
    assert commands[1][-1].endswith(".ptx")
    for place in known_kernels(context):
        text = place.read_text(encoding="utf-8")
        assert text.count(".entry") == 1 and text.endswith("ret;\n\n}\n")


def test_a_source_that_cannot_be_taken_apart_is_compiled_as_it_is(context: BuildContext) -> None:
    later = 'extern "C" __device__ float half_of(float x) { return 0.5f * x; }\n'
    fatbin = compile_kernels(HEAD + kernel("f") + later, context, ARCH)
    assert b".text.f" in fatbin
    assert not known_kernels(context)
