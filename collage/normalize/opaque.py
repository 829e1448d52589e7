"""Tensor programs that importers emit in the place of operators become those operators again.

TVM's ONNX importer lowers ``Clip``, ``Pad``, ``Tile`` and reversals at once to tensor programs
(``call_tir``), which no backend's patterns can see into. A program's name says which operator it
may be, its index offsets say with which arguments; the guess counts only when TOPI makes, for that
operator, a program that is structurally equal to the one found.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import tvm
import tvm_ffi
from tvm import relax, te, tirx, topi

from collage.backends.relax.static_shape import static_shape
from collage.rewrite import Rules, Scope, is_tensor


@dataclass(frozen=True)
class _Guess:
    """A TOPI function with its arguments after the tensors, and the operator that says the same."""

    function: Callable[..., te.Tensor]
    arguments: tuple[object, ...]
    operator: Callable[[], relax.Expr]


def _lift_tensor_program(scope: Scope, call: relax.Call) -> relax.Expr | None:
    """Replace ``call_tir`` of a recognized program by the operator it came from."""
    name = str(call.args[0].name_hint)
    program = scope.functions.get(name)
    operands = call.args[1]
    if program is None or not isinstance(operands, relax.Tuple) or not is_tensor(call):
        return None
    tensors = list(operands.fields)
    if not tensors or not all(is_tensor(x) for x in tensors):
        return None
    kind = name.rstrip("0123456789")
    for guess in _guesses(kind, program, tensors, static_shape(call)):
        if _same_program(program, guess, tensors):
            return guess.operator()
    return None


def _guesses(
    kind: str, program: tirx.PrimFunc, tensors: list[relax.Expr], shape: tuple[int, ...]
) -> list[_Guess]:
    x = tensors[0]
    if kind in ("maximum", "minimum"):
        return _extremum(kind, program, tensors)
    if len(tensors) != 1 or len(shape) != len(static_shape(x)):
        return []
    if kind == "flip":
        return [
            _Guess(topi.flip, (axis,), partial(relax.op.flip, x, axis))
            for axis in range(len(shape))
        ]
    if kind == "tile" and all(
        i and o % i == 0 for o, i in zip(shape, static_shape(x), strict=True)
    ):
        repeats = [o // i for o, i in zip(shape, static_shape(x), strict=True)]
        return [_Guess(topi.tile, (repeats,), lambda: relax.op.tile(x, repeats))]
    if kind.endswith("pad"):
        return _padding(kind, program, x, shape)
    return []


def _extremum(kind: str, program: tirx.PrimFunc, tensors: list[relax.Expr]) -> list[_Guess]:
    function, operator = getattr(topi, kind), getattr(relax.op, kind)
    if len(tensors) == 2:
        return [_Guess(function, (), lambda: operator(*tensors))]
    stored = _stored_value(program)
    if not isinstance(stored, tirx.Max | tirx.Min) or not isinstance(stored.b, tirx.FloatImm):
        return []
    value = float(stored.b.value)
    bound = relax.const(value, str(tensors[0].ty.dtype.dtype))
    return [_Guess(function, (value,), lambda: operator(tensors[0], bound))]


def _padding(
    kind: str, program: tirx.PrimFunc, x: relax.Expr, shape: tuple[int, ...]
) -> list[_Guess]:
    stored = _stored_value(program)
    before = _pad_before(stored, len(shape))
    after = [o - i - b for o, i, b in zip(shape, static_shape(x), before, strict=True)]
    if min(before + after, default=0) < 0:
        return []
    width = [n for pair in zip(before, after, strict=True) for n in pair]
    if kind == "pad":
        fill = _fill_value(stored)
        return [
            _Guess(
                topi.nn.pad,
                (before, after, fill),
                lambda: relax.op.nn.pad(x, width, "constant", fill),
            )
        ]
    modes: dict[str, tuple[Callable[..., te.Tensor], tuple[object, ...], str]] = {
        "mirror_pad": (topi.nn.mirror_pad, (before, after, "REFLECT"), "reflect"),
        "replicate_pad": (topi.nn.replicate_pad, (before, after), "replicate"),
        "circular_pad": (topi.nn.circular_pad, (before, after), "circular"),
    }
    if kind not in modes:
        return []
    function, arguments, mode = modes[kind]
    return [_Guess(function, arguments, lambda: relax.op.nn.pad(x, width, mode))]


def _same_program(program: tirx.PrimFunc, guess: _Guess, tensors: list[relax.Expr]) -> bool:
    builder = relax.BlockBuilder()
    params = [relax.Var(f"p{i}", x.ty) for i, x in enumerate(tensors)]
    with builder.function("main", params=params):
        builder.emit_func_output(builder.emit_te(guess.function, *params, *guess.arguments))
    made = [f for f in builder.get().functions.values() if isinstance(f, tirx.PrimFunc)]
    return len(made) == 1 and bool(tvm_ffi.structural_equal(made[0], program))


def _nodes(root: object, kind: type) -> list[tirx.Expr]:
    """Every node of this kind below ``root``."""
    found: list[tirx.Expr] = []

    def note(node: object) -> None:
        if isinstance(node, kind):
            found.append(node)

    tvm_ffi.structural_walk(root, (object, note))
    return found


def _stored_value(program: tirx.PrimFunc) -> tirx.Expr | None:
    """What the program's only store writes; None when it has several."""
    stores = _nodes(program.body, tirx.BufferStore)
    return stores[0].value if len(stores) == 1 else None


def _pad_before(stored: tirx.Expr | None, rank: int) -> list[int]:
    """Leading pad of each axis: the offset in the one load ``x[i0 - 1, i1, ...]``."""
    loads = _nodes(stored, tvm.ir.TensorLoad) if stored is not None else []
    if len(loads) != 1 or len(loads[0].indices) != rank:
        return [0] * rank
    return [_offset(index) for index in loads[0].indices]


def _offset(index: tirx.Expr) -> int:
    """The number subtracted from the loop variable; ``(i + (n - b)) % n`` subtracts ``b``."""
    for wrapped in _nodes(index, tirx.FloorMod):
        if isinstance(wrapped.a, tirx.Add) and isinstance(wrapped.a.b, tirx.IntImm):
            return (int(wrapped.b.value) - int(wrapped.a.b.value)) % int(wrapped.b.value)
    for difference in _nodes(index, tirx.Sub):
        if isinstance(difference.a, tirx.Var):
            return int(difference.b.value)
    return 0


def _fill_value(stored: tirx.Expr | None) -> float:
    if isinstance(stored, tvm.ir.Call) and len(stored.args) == 3:
        value = stored.args[2]
        if isinstance(value, tirx.FloatImm | tirx.IntImm):
            return float(value.value)
    return 0.0


RULES: Rules = {"call_tir": (_lift_tensor_program,)}
