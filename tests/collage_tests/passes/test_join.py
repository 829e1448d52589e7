"""Modules become one, whatever their functions are called."""

from __future__ import annotations

import itertools

import numpy as np
import tvm
from tvm import relax

from collage.passes import join_functions
from collage.testing import graph

ROWS = 4
OPERATORS = {"exp": np.exp, "sqrt": np.sqrt, "tanh": np.tanh}


def _calling(inner: str, operator: str) -> tvm.IRModule:
    """A ``main`` that calls a function by the given name."""
    body = graph([(ROWS,)], lambda _, x: getattr(relax.op, operator)(x))["main"]
    builder = relax.BlockBuilder()
    called = builder.add_func(body.with_attr("global_symbol", inner), inner)
    x = relax.Var("x", relax.TensorType((ROWS,), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            result = builder.emit_output(relax.Call(called, [x]))
        builder.emit_func_output(result)
    return builder.get()


def test_names_that_collide_stay_apart() -> None:
    # "a" has a "b_c", "a_b" has a "c", and a third function is called as both would be.
    for names in itertools.permutations([("a", "b_c"), ("a_b", "c"), ("a_b_c", "d")]):
        given = dict(zip(names, OPERATORS, strict=True))
        joined = join_functions({name: _calling(i, given[name, i]) for name, i in names})
        assert len(joined.functions) == 6
        vm = relax.VirtualMachine(tvm.compile(joined, "llvm"), tvm.cpu())
        x = np.random.default_rng().uniform(0.5, 1, ROWS).astype("float32")
        for (name, inner), operator in given.items():
            found = vm[name](tvm.runtime.tensor(x)).numpy()
            np.testing.assert_allclose(
                found, OPERATORS[operator](x), rtol=1e-4, err_msg=f"{name}/{inner}"
            )


def test_attributes_of_the_modules_stay() -> None:
    kept = _calling("inner", "exp").with_attr("name", "net")
    assert dict(join_functions({"a": kept, "b": _calling("inner", "exp")}).attrs) == {"name": "net"}
