"""TVM's CUDA sources taken apart into kernels."""

from __future__ import annotations

import pytest

from collage.backends.toolchain.kernels.source import Source, entries, merged

HEAD = """#include <cuda_fp16.h>
__device__ half max(half a, half b)
{
  return a;
}
__host__ __device__ half4 make_half4(half x) { return half4(x); }
static inline __device__ int kept() { return 1; }
struct pair {
  __host__ __device__ pair() {}
};
extern "C" __global__ void __launch_bounds__(8) f(half* __restrict__ x);
extern "C" __global__ void g(int n);
"""
F = 'extern "C" __global__ void __launch_bounds__(8) f(half* __restrict__ x) {\n  { x[0]; }\n}\n'
G = 'extern "C" __global__ void g(int n) {\n}\n'


def test_kernels_are_their_definitions() -> None:
    source = Source.of(HEAD + F + G)
    assert source is not None
    assert [(kernel.name, kernel.code) for kernel in source.kernels] == [("f", F), ("g", G)]


def test_helpers_are_not_seen_from_outside() -> None:
    source = Source.of(HEAD + F + G)
    assert source is not None
    assert source.prelude.count("static __device__ half max") == 1
    assert source.prelude.count("static __host__ __device__ half4 make_half4") == 1
    assert "static static" not in source.prelude
    assert "static __host__ __device__ pair()" not in source.prelude


def test_a_source_of_some_kernels_has_no_others() -> None:
    source = Source.of(HEAD + F + G)
    assert source is not None
    assert source.with_kernels(source.kernels[1:]).endswith(G)
    assert " f(" not in source.with_kernels(source.kernels[1:])


@pytest.mark.parametrize(
    "code",
    [
        HEAD,
        HEAD + F + F,
        HEAD + F + "__device__ int later() { return 1; }\n",
        'extern "C" __global__ void open(int n) {\n',
        "",
    ],
    ids=["declared only", "twice", "something behind", "not closed", "nothing"],
)
def test_what_is_anything_else_is_not_taken_apart(code: str) -> None:
    assert Source.of(code) is None


def test_ptx_is_taken_apart_with_what_all_kernels_need() -> None:
    common = ".version 9.0\n.target sm_90a\n.global .align 4 .b8 table[8];\n"
    helper = ".func (.param .b32 r) helper(\n)\n{\n\tret;\n}\n"
    first = ".visible .entry f(\n\t.param .u64 f_param_0\n)\n.maxntid 8\n{\n\t{\n\t}\n\tret;\n\n}\n"
    second = ".visible .entry g(\n)\n{\n\tret;\n}\n"
    found = entries(common + first + helper + second)
    assert list(found) == ["f", "g"]
    for name, entry in (("f", first), ("g", second)):
        assert common in found[name]
        assert helper in found[name]
        assert found[name].endswith(entry)
    assert "entry g" not in found["f"]


def test_assembly_that_is_written_inline_ends_no_kernel() -> None:
    """Its blocks begin and end at the beginning of a line."""
    head = ".version 9.0\n.target sm_90a\n"
    inline = "{\n .reg .pred p;\n @p st.shared.v2.u32 [%r1], {%r2, %r2};\n}\n"
    first = ".visible .entry f(\n)\n{\n\t" + inline + "\tret;\n}\n"
    second = ".visible .entry g(\n)\n{\n\tret;\n}\n"
    helper = ".func helper(\n)\n{\n\t" + inline + "\tret;\n}\n"
    found = entries(head + helper + first + second)
    assert found == {"f": head + helper + first, "g": head + helper + second}
    assert (
        merged(list(found.values())) == f"{head}{helper}\n".replace("\n\n", "\n") + first + second
    )


def test_kernels_of_several_modules_are_one() -> None:
    table = ".global .align 4 .b8 table[8] = {1, 2};\n"
    helper = ".func (.param .b32 r) helper(\n)\n{\n\tret;\n}\n"
    head = ".version 9.0\n.target sm_90a\n"
    first = entries(f"{head}{table}.visible .entry f(\n)\n{{\n}}\n")["f"]
    second = entries(f"{head}{table}{helper}.visible .entry g(\n)\n{{\n}}\n")["g"]
    third = entries(f"{head}.visible .entry h(\n)\n{{\n}}\n")["h"]
    found = merged([first, second, third])
    assert found is not None
    assert [found.count(text) for text in (head, table, helper)] == [1, 1, 1]
    assert all(found.count(f".entry {name}(") == 1 for name in "fgh")
    assert found.index("helper") < found.index(".entry f(")
    assert merged([first, third.replace("9.0", "8.0")]) is None
