"""Vectors of float32 rounded to bfloat16, by an instruction and as older compilers have it."""

from __future__ import annotations

import ctypes
import subprocess

import ml_dtypes
import numpy as np
import pytest

from collage.backends.devices.cpu_flags import cpu_flags_here
from collage.backends.onednn.codegen import TEMPLATES

_SOURCE = """
#include "vectors/lanes_avx512.h"
using namespace collage_onednn::avx512;

extern "C" COLLAGE_AVX512 void one_by_one(const float* x, uint16_t* y) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(y), halves_of(load(x)));
}
extern "C" COLLAGE_AVX512 void in_turns(const float* x, uint16_t* y) {
  _mm512_storeu_si512(y, halves_in_turns(load(x), load(x + 16)));
}
"""

_FLAGS = {
    "by_bits": ({"avx512bw"}, ["-DCOLLAGE_NO_AVX512_BF16"]),
    "by_instruction": ({"avx512bw", "avx512_bf16"}, []),
}


@pytest.fixture(scope="module", params=_FLAGS)
def functions(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> ctypes.CDLL:
    needed, flags = _FLAGS[request.param]
    if not needed <= cpu_flags_here():
        pytest.skip(f"this processor lacks {', '.join(needed - cpu_flags_here())}")
    folder = tmp_path_factory.mktemp("rounded")
    source, library = folder / "rounded.cc", folder / "rounded.so"
    source.write_text(_SOURCE)
    options = ["-std=c++17", "-O2", "-shared", "-fPIC", f"-I{TEMPLATES}", *flags]
    subprocess.run(["g++", *options, source, "-o", library], check=True)
    return ctypes.CDLL(str(library))


def _rounded(function: ctypes._NamedFuncPointer, x: np.ndarray) -> np.ndarray:
    found = np.empty(x.size, np.uint16)
    function(x.ctypes.data_as(ctypes.c_void_p), found.ctypes.data_as(ctypes.c_void_p))
    return found.view(ml_dtypes.bfloat16)


def test_they_are_rounded_to_the_nearest_even(functions: ctypes.CDLL) -> None:
    rng = np.random.default_rng()
    ties = (rng.integers(0x0080, 0x7F7F, 32, np.uint32) << 16 | 0x8000).view(np.float32)
    special = np.resize(np.float32([0.0, -0.0, np.inf, -np.inf, 3.4e38, -3.4e38, 1.0, -1.5]), 32)
    for x in (rng.standard_normal(32, np.float32), ties, -ties, special):
        wanted = x.astype(ml_dtypes.bfloat16).view(np.uint16)
        np.testing.assert_array_equal(
            _rounded(functions.one_by_one, x[:16]).view(np.uint16), wanted[:16]
        )
        in_turns = _rounded(functions.in_turns, x).view(np.uint16)
        np.testing.assert_array_equal(in_turns[0::2], wanted[:16])
        np.testing.assert_array_equal(in_turns[1::2], wanted[16:])


def test_what_is_no_number_stays_none(functions: ctypes.CDLL) -> None:
    bits = np.uint32([0x7F800001, 0xFF800001, 0x7FC00000, 0x7FFFFFFF, 0xFFFFFFFF] * 7)[:32]
    x = bits.view(np.float32)
    assert np.isnan(_rounded(functions.one_by_one, x[:16]).astype(np.float32)).all()
    assert np.isnan(_rounded(functions.in_turns, x).astype(np.float32)).all()
