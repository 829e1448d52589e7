"""A name for what a module computes, whatever its partitions are called and annotated with."""

from __future__ import annotations

import hashlib
from typing import Any

import tvm
from tvm import ir, relax

from collage.backends.contract.errors import MeasurementError
from collage.backends.relax.constant_data import constant_data


def content_key(mod: tvm.IRModule) -> str:
    """SHA-256 of a module's operators in order, followed through its functions, with constants.

    Partitions of the same operators for different backends get the same one: functions and their
    attributes do not count, only what is computed from what.
    """
    tracer = _Tracer(mod)
    main = mod["main"]
    result = tracer.call(main, [tracer.name(str(param.ty)) for param in main.params])
    tracer.note(f"return {result}")
    return tracer.digest.hexdigest()


class _Tracer:
    """Numbers values in the order of their computation.

    A value is the text that names it, or a tuple of values, or a function.
    """

    def __init__(self, mod: tvm.IRModule) -> None:
        self._mod = mod
        self._env: dict[relax.Var, Any] = {}
        self._constants: dict[ir.GenericConst, str] = {}
        self._count = 0
        self.digest = hashlib.sha256()

    def note(self, line: str) -> None:
        self.digest.update(f"{line}\n".encode())

    def name(self, definition: str) -> str:
        """A fresh name for what is defined so."""
        self._count += 1
        self.note(f"v{self._count} = {definition}")
        return f"v{self._count}"

    def call(self, func: relax.Function, args: list[Any]) -> Any:
        self._env.update(zip(func.params, args, strict=True))
        return self._expr(func.body)

    def _expr(self, expr: relax.Expr) -> Any:
        match expr:
            case relax.Var():
                return self._env[expr]
            case ir.GenericConst():
                return self._constant(expr)
            case relax.SeqExpr():
                for block in expr.blocks:
                    for binding in block.bindings:
                        self._env[binding.var] = self._expr(binding.value)
                return self._expr(expr.body)
            case relax.Tuple():
                return tuple(self._expr(field) for field in expr.fields)
            case relax.TupleGetItem():
                value = self._expr(expr.tuple_value)
                return value[expr.index] if isinstance(value, tuple) else f"{value}.{expr.index}"
            case relax.Function() | ir.GlobalVar():
                return expr
            case relax.Call():
                return self._call(expr)
            case _:
                return str(expr)

    def _call(self, call: relax.Call) -> Any:
        args = [self._expr(arg) for arg in call.args]
        if isinstance(call.op, ir.Op):
            texts = [self._text(arg) for arg in args]
            types = list(call.ty_args or [])
            return self.name(f"{call.op.name}{texts} {call.attrs} {types} : {call.ty}")
        callee = self._expr(call.op)
        if isinstance(callee, ir.GlobalVar):
            callee = self._mod[callee]
        if not isinstance(callee, relax.Function):
            raise MeasurementError(f"cannot follow a call of {call.op}", value=str(call.op))
        return self.call(callee, args)

    def _text(self, value: Any) -> str:
        if isinstance(value, tuple):
            return f"({', '.join(self._text(item) for item in value)})"
        if isinstance(value, ir.GlobalVar):
            # A tensor program, as call_tir names it.
            return str(self._mod[value].script(show_meta=False))
        return str(value)

    def _constant(self, constant: ir.GenericConst) -> str:
        if constant not in self._constants:
            digest = hashlib.sha256(constant_data(constant).tobytes()).hexdigest()
            self._constants[constant] = self.name(f"constant {constant.ty} {digest}")
        return self._constants[constant]
