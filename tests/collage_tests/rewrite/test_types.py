"""Types that calls keep when they are written anew, and those that are inferred."""

from __future__ import annotations

import pytest
from tvm import relax
from tvm.relax import op

from collage.rewrite import Scope, apply_rules, flat_bindings, map_leaves
from collage.testing import graph


def _tensor(name: str, *shape: int, dtype: str = "float32") -> relax.Var:
    return relax.Var(name, relax.TensorType(shape, dtype))


def _typed(call: relax.Call) -> relax.Call:
    return Scope(relax.BlockBuilder(), {}).typed(call)


def _has_type(call: relax.Call) -> bool:
    return isinstance(call.ty, relax.TensorType)


def test_a_call_of_variables_of_the_same_types_keeps_its_type():
    call = _typed(op.matmul(_tensor("a", 2, 3), _tensor("b", 3, 5)))
    others = {"a": _tensor("c", 2, 3), "b": _tensor("d", 3, 5)}

    changed = map_leaves(call, lambda leaf: others[str(leaf.name)])

    assert not changed.same_as(call)
    assert changed.ty.same_as(call.ty)
    assert _typed(changed).same_as(changed)


@pytest.mark.parametrize(
    "other",
    [_tensor("c", 1, 4), _tensor("c", 3, 1), relax.const([[1.0] * 4] * 3, "float32")],
    ids=["one row", "one column", "a constant"],
)
def test_a_call_of_anything_else_is_inferred_anew(other):
    call = _typed(op.add(_tensor("a", 3, 4), _tensor("b", 3, 4)))

    changed = map_leaves(call, lambda leaf: other if leaf.same_as(call.args[0]) else leaf)

    assert not _has_type(changed)
    assert tuple(map(int, _typed(changed).ty.shape)) == (3, 4)


def test_rounds_infer_the_types_of_what_rules_made_alone(monkeypatch):
    """A chain of operators of which the second is rewritten: one round changes it, one ends."""

    def chain(emit, x):
        x = emit(op.exp(emit(op.log(x))))
        for _ in range(20):
            x = emit(op.sin(x))
        return x

    def exp_of_log(scope, call):
        log = scope.call(call.args[0], "log")
        return None if log is None else op.nn.relu(log.args[0])

    mod = graph([(8,)], chain)
    inferred = []
    normalize = relax.BlockBuilder.normalize

    def watched(self, expr):
        if isinstance(expr, relax.Call):
            inferred.append(expr)
        return normalize(self, expr)

    monkeypatch.setattr(relax.BlockBuilder, "normalize", watched)

    found = apply_rules(mod, {"exp": (exp_of_log,)})

    names = [str(value.op.name) for _, value in flat_bindings(found["main"])]
    assert names == ["relax.nn.relu", *["relax.sin"] * 20]
    assert inferred == []
