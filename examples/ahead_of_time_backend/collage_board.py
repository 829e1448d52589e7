"""A backend for a machine that is not here: C source for a cross compiler, and nothing is run."""

import platform
from dataclasses import dataclass

from tvm.relax.dpl import is_op, wildcard

from collage.backends.contract import (
    Availability,
    PatternTriple,
    Roofline,
    RunsElsewhere,
    TensorBackend,
    Verdict,
)
from collage.backends.relax.static_shape import tensor_dtype
from collage.backends.toolchain.c_programs import c_library

OPERATORS = ("add", "multiply", "nn.relu", "tanh", "matmul")


@dataclass(frozen=True)
class BoardOptions:
    compiler: str = ""  # such as "aarch64-linux-gnu-g++"; the environment's CXX where it is empty
    flags: str = ""  # such as "-mcpu=cortex-a72"


class BoardBackend(TensorBackend, RunsElsewhere):
    name, options_type = "board", BoardOptions

    def probe(self):
        return Availability(True, versions={"board": "1.0"})

    def unfit_here(self, target):
        return f"its code is for a board, not for this {platform.machine()}"

    def roofline(self, device):
        return Roofline(matmul=0.6, convolution=0.4, attention=0.4, memory=0.9)

    def patterns(self, target):
        def fits(match):
            dtype = tensor_dtype(match.root)
            return Verdict.yes() if dtype == "float32" else Verdict.no(f"{dtype} is not float32")

        def pattern(operator):
            operands = 2 if operator in ("add", "multiply", "matmul") else 1
            return is_op(f"relax.{operator}")(*(wildcard() for _ in range(operands)))

        return [
            PatternTriple(f"board.{name.split('.')[-1]}", pattern(name), fits) for name in OPERATORS
        ]

    def generate(self, programs, target, context):
        options = target.options
        return [
            c_library(programs, context, compiler=options.compiler, flags=options.flags.split())
        ]
