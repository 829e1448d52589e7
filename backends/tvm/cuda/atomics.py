"""What a GPU's memory does by itself to an element that many threads change.

CUDA's atomics take fewer types than there are (CUDA C++ Programming Guide, "Atomic Functions"):
64-bit integers are added as unsigned ones, floating-point extremes are those of their bits, which
as signed integers are in order from zero on and as unsigned ones in reverse order below it, and a
product is tried until nobody was faster.
"""

from __future__ import annotations

from typing import Any

from tvm import tirx
from tvm.script.ir_builder import tirx as T

_INTEGERS = {"int32": "int", "int64": "long long"}
_BITS = {"float32": "int32", "float64": "int64"}
_QUIET_NAN = {"float32": 0x7FC00000, "float64": 0x7FF8000000000000}

ADD, UPDATE, MULTIPLY, MAX, MIN = "add", "update", "mul", "max", "min"
_OPERATIONS = (ADD, MULTIPLY, MAX, MIN)
_NAMES = {MAX: "atomicMax", MIN: "atomicMin"}


def has_atomic(operation: str, dtype: str) -> bool:
    """Whether :func:`combine` takes it.

    Parameters
    ----------
    operation : str
        As Relax's scatters name their reductions.
    dtype : str
        Of the elements.

    Returns
    -------
    bool
        Types narrower than the memory's own are not.
    """
    return operation in _OPERATIONS and (dtype in _INTEGERS or dtype in _BITS)


def combine(operation: str, dtype: str, element: Any, value: Any) -> None:
    """Write what combines an element with a value, whoever else does that at the time.

    Parameters
    ----------
    operation, dtype
        As :func:`has_atomic` takes them.
    element : TensorLoad
        In global memory.
    value : Expr
        Of the same type. One that is no number stays in an extreme, as in PyTorch.
    """
    if operation == ADD:
        _add(dtype, element, value)
    elif operation == MULTIPLY:
        _multiply(dtype, element, value)
    elif dtype in _INTEGERS:
        _call(_NAMES[operation], _INTEGERS[dtype], element, value)
    else:
        _extreme(operation, dtype, element, value)


def _add(dtype: str, element: Any, value: Any) -> None:
    if dtype == "int64":
        _call("atomicAdd", "unsigned long long", element, value)
    else:
        T.evaluate(tirx.call_extern(dtype, "atomicAdd", tirx.address_of(element), value))


def _extreme(operation: str, dtype: str, element: Any, value: Any) -> None:
    bits, upwards = _BITS[dtype], operation == MAX
    kind = _INTEGERS[bits]
    # What is no number is above all as a signed integer, and with a sign as an unsigned one.
    none = _QUIET_NAN[dtype] - (0 if upwards else 1 << (int(bits[3:]) - 1))
    own = T.buffer_proxy(T.alloc_buffer((1,), bits, scope="local"))
    own[0] = tirx.reinterpret(bits, value)
    with T.If(tirx.isnan(value)), T.Then():
        own[0] = tirx.const(none, bits)
    with T.If(own[0] >= tirx.const(0, bits)):
        with T.Then():
            _call(_NAMES[operation], kind, element, own[0])
        with T.Else():
            _call(_NAMES[MIN if upwards else MAX], f"unsigned {kind}", element, own[0])


def _multiply(dtype: str, element: Any, value: Any) -> None:
    bits = _BITS.get(dtype, dtype)
    seen, there, product = (
        T.buffer_proxy(T.alloc_buffer((1,), kind, scope="local")) for kind in (bits, bits, dtype)
    )
    product[0] = element
    there[0] = tirx.reinterpret(bits, product[0])
    seen[0] = there[0] ^ tirx.const(1, bits)
    # Words are compared and swapped as unsigned ones.
    kind = f"unsigned {_INTEGERS[bits]}"
    with T.While(seen[0] != there[0]), T.seq_scope():
        seen[0] = there[0]
        product[0] = tirx.reinterpret(dtype, seen[0]) * value
        wanted = tirx.reinterpret(bits, product[0])
        there[0] = _called("atomicCAS", kind, bits, element, seen[0], wanted)


def _call(name: str, kind: str, element: Any, *values: Any) -> None:
    """An atomic on an element's bits, taken as of another type."""
    T.evaluate(_called(name, kind, "int64", element, *values))


def _called(name: str, kind: str, dtype: str, element: Any, *values: Any) -> Any:
    # TVM gives what makes a pointer the type void*, so that the cast has to be in the function.
    names = [f"value_{place}" for place in range(len(values))]
    given = "".join(f", {kind} {each}" for each in names)
    function = f"[](void* at{given}) {{ return {name}({', '.join([f'({kind}*)at', *names])}); }}"
    return tirx.call_extern(dtype, function, tirx.address_of(element), *values)
