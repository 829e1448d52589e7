"""Control flow as functions that the virtual machine runs: they call the parts of a model.

A loop is a function that calls itself. Were each round a call inside the one before, a thousand
rounds would be a thousand calls deep, and the states of all of them would be kept. So there is a
row of functions, each of which makes up to twice as many rounds as the one before by calling it
twice.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import tvm
from tvm import relax

from collage.backends.relax.modules.courses import COURSE_ATTR
from collage.course import Choose, Course, Fail, Region, Repeat, Run, Step

_DOUBLINGS = 10
"""Only every so many rounds, as a power of two, calls are one deeper."""

_Scope = Mapping[str, relax.Expr]


def drive(mod: tvm.IRModule, name: str, course: Course) -> tvm.IRModule:
    """A module with one more function, which calls others as data say.

    Parameters
    ----------
    mod : tvm.IRModule
        Holds the parts that the course names.
    name : str
        Of the function.
    course : Course
        What it calls.

    Returns
    -------
    tvm.IRModule
        With that function, and private ones for its loops.

    Examples
    --------
    >>> import numpy as np
    >>> from collage.tensor_info import TensorInfo
    >>> from collage.testing import graph
    >>> def body(emit, x):
    ...     more = emit(relax.op.add(x, relax.const(1.0)))
    ...     return relax.Tuple([emit(relax.op.less(more, relax.const(5.0))), more])
    >>> rounds = Region((Run("main", ("x",), ("go", "more")),), ("go", "more"))
    >>> loop = Repeat(("yes", "start"), ("going", "x"), rounds, ("stopped", "end"))
    >>> start = TensorInfo((), "float32", "start")
    >>> end = TensorInfo((), "float32", "end")
    >>> course = Course((start,), (end,), Region((loop,), ("end",)), {"yes": np.array(True)})
    >>> mod = drive(graph([()], body), "count", course)
    >>> vm = relax.VirtualMachine(tvm.compile(mod, "llvm"), tvm.cpu())
    >>> float(vm["count"](tvm.runtime.tensor(np.array(0.5, "float32"))).numpy())
    5.5
    """
    return _Writer(mod, name, course).module()


class _Writer:
    """Writes the functions of one course."""

    def __init__(self, mod: tvm.IRModule, name: str, course: Course) -> None:
        self._mod = mod
        self._name = name
        self._course = course
        self._functions: dict[tvm.ir.GlobalVar, relax.Function] = {}
        self._taken = {str(gvar.name_hint) for gvar in mod.get_global_vars()}

    def module(self) -> tvm.IRModule:
        inputs = self._course.inputs
        types = [relax.TensorType(info.shape, info.dtype) for info in inputs]
        params = _params(types)
        scope = {
            **{
                name: relax.const(value, str(value.dtype))
                for name, value in self._course.constants.items()
            },
            **{info.name: param for info, param in zip(inputs, params, strict=True)},
        }
        body = self._region(self._course.region, scope, alone=len(self._course.outputs) == 1)
        gvar = self._declared(self._name, types, body.body.ty)
        attrs = {"global_symbol": self._name, COURSE_ATTR: True}
        self._functions[gvar] = _function(params, body, body.body.ty, attrs)
        functions = {**dict(self._mod.functions_items()), **self._functions}
        return relax.transform.Normalize()(tvm.IRModule(functions, attrs=self._mod.attrs))

    def _region(self, region: Region, scope: _Scope, *, alone: bool = False) -> relax.SeqExpr:
        """A region's steps, and a tuple of its results, or what it has for one by itself."""
        bindings: list[relax.Binding] = []
        known = dict(scope)
        for step in region.steps:
            whole = _bound(bindings, self._value(step, known))
            if isinstance(step, Fail):
                continue
            if isinstance(step, Run) and not isinstance(whole.ty, relax.TupleType):
                known[step.outputs[0]] = whole
            else:
                parts = zip(step.outputs, _fields(bindings, whole), strict=True)
                known.update(parts)
        results = [known[name] for name in region.results]
        value = results[0] if alone else _tuple(results)
        return _sequence(bindings, _bound(bindings, value))

    def _value(self, step: Step, known: _Scope) -> relax.Expr:
        match step:
            case Run():
                part = self._mod[step.part]
                types = relax.FuncType([param.ty for param in part.params], part.ret_ty)
                callee = _typed(self._mod.get_global_var(step.part), types)
                return _typed_call(callee, [known[name] for name in step.inputs], part.ret_ty)
            case Choose():
                then, otherwise = (self._region(one, known) for one in (step.then, step.otherwise))
                return _if(known[step.condition], then, otherwise)
            case Repeat():
                return self._loop(step, known)
            case Fail():
                return _failure(step.reason)

    def _loop(self, loop: Repeat, known: _Scope) -> relax.Expr:
        """The first call of a loop; what its rounds read besides the states goes along."""
        read = dict.fromkeys(name for name in loop.body.used() if name not in loop.states)
        constants = {n: x for n, x in known.items() if isinstance(x, tvm.ir.GenericConst)}
        given = [name for name in read if name in known and name not in constants]
        arguments = [known[name] for name in [*given, *loop.initial]]
        types = [argument.ty for argument in arguments]
        result = relax.TupleType(types[len(given) :])

        def new(role: str, level: int) -> tvm.ir.GlobalVar:
            return self._declared(f"{self._name}_{role}_{1 << level}", types, result)

        def body(gvar: tvm.ir.GlobalVar, first: relax.SeqExpr, params: list[relax.Var]) -> None:
            self._functions[gvar] = _function(params, first, result, {COURSE_ATTR: True})

        levels = range(_DOUBLINGS + 1)
        rounds = [new("rounds", level) for level in levels]
        loops = [new("loop", level) for level in levels]
        params = _params(types)
        states = params[len(given) :]
        scope = {**constants, **dict(zip([*given, *loop.states], params, strict=True))}
        bindings: list[relax.Binding] = []
        once = _if(states[0], self._region(loop.body, scope), _whole(states))
        body(rounds[0], _sequence(bindings, _bound(bindings, once)), params)
        for level in levels:
            params = _params(types)
            if level:
                twice = _twice(rounds[level - 1], rounds[level - 1], params, result)
                body(rounds[level], twice, params)
                params = _params(types)
            following = loops[min(level + 1, _DOUBLINGS)]
            body(loops[level], _twice(rounds[level], following, params, result), params)
        return _typed_call(loops[0], arguments, result)

    def _declared(
        self, name: str, types: Sequence[relax.Type], result: relax.Type
    ) -> tvm.ir.GlobalVar:
        while name in self._taken:
            name += "_"
        self._taken.add(name)
        gvar = relax.GlobalVar(name)
        relax.expr._update_type(gvar, relax.FuncType(list(types), result))
        return gvar


def _twice(
    first: tvm.ir.GlobalVar,
    second: tvm.ir.GlobalVar,
    params: Sequence[relax.Var],
    result: relax.TupleType,
) -> relax.SeqExpr:
    """A call of a function, and of another one with what that gives, if it is to go on."""
    bindings: list[relax.Binding] = []
    left = _bound(bindings, _typed_call(first, params, result))
    states = _fields(bindings, left)
    others = list(params[: len(params) - len(states)])
    more: list[relax.Binding] = []
    further = _bound(more, _typed_call(second, [*others, *states], result))
    choice = _if(states[0], _sequence(more, further), _whole(states))
    return _sequence(bindings, _bound(bindings, choice))


def _whole(values: Sequence[relax.Expr]) -> relax.SeqExpr:
    bindings: list[relax.Binding] = []
    return _sequence(bindings, _bound(bindings, _tuple(values)))


def _sequence(bindings: list[relax.Binding], value: relax.Expr) -> relax.SeqExpr:
    return _typed(relax.SeqExpr([relax.BindingBlock(bindings)], value), value.ty)


def _bound(bindings: list[relax.Binding], value: relax.Expr) -> relax.Var:
    var = relax.Var("v", value.ty)
    bindings.append(relax.VarBinding(var, value))
    return var


def _fields(bindings: list[relax.Binding], whole: relax.Var) -> list[relax.Var]:
    found = []
    for index, ty in enumerate(whole.ty.fields):
        found.append(_bound(bindings, _typed(relax.TupleGetItem(whole, index), ty)))
    return found


def _tuple(values: Sequence[relax.Expr]) -> relax.Tuple:
    return _typed(relax.Tuple(list(values)), relax.TupleType([value.ty for value in values]))


def _if(condition: relax.Expr, then: relax.SeqExpr, otherwise: relax.SeqExpr) -> relax.If:
    return _typed(relax.If(condition, then, otherwise), then.ty)


def _failure(reason: str) -> relax.Expr:
    """A call that raises an error in whatever program the library runs.

    The runtime's own check of a tensor: it says first what it is told to."""
    nothing = relax.const(np.zeros((), "int64"))
    arguments = [nothing, relax.prim_value(1), tvm.ir.StringImm("int64"), tvm.ir.StringImm(reason)]
    check = relax.ExternFunc("vm.builtin.check_tensor_info")
    return relax.Call(check, arguments, ty_args=[relax.AnyType()])


def _typed_call(
    callee: tvm.ir.GlobalVar, arguments: Sequence[relax.Expr], result: relax.Type
) -> relax.Call:
    return _typed(relax.Call(callee, list(arguments)), result)


def _typed(expr: relax.Expr, ty: relax.Type) -> relax.Expr:
    """An expression that knows its type, which not every one finds out by itself."""
    if expr.ty.is_missing():
        relax.expr._update_type(expr, ty)
    return expr


def _params(types: Sequence[relax.Type]) -> list[relax.Var]:
    return [relax.Var(f"x{index}", ty) for index, ty in enumerate(types)]


def _function(
    params: Sequence[relax.Var],
    body: relax.SeqExpr,
    result: relax.Type,
    attrs: Mapping[str, object],
) -> relax.Function:
    made = tvm.ir.make_node("ir.DictAttrs", **attrs)
    return relax.Function(list(params), body, result, is_pure=True, attrs=made)
