"""Runs lowered modules for CUDA on the CPU: TVM's generated source under a model of CUDA's threads.

What is compiled is the very source that nvcc gets, with the few words replaced that only it knows;
launches take their extents from the scheduled program. So indices, guards, barriers and fragments
of every schedule are checked where there is no GPU. See ``cuda_on_host.h`` for what is modelled.
"""

from __future__ import annotations

import ctypes
import re
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tvm
import tvm_ffi
from tvm import relax, s_tir, tirx

from collage.backends.compile import PASSES
from collage.backends.devices.cpu_flags import cpu_flags_here
from collage.backends.toolchain.cuda_toolkit import find_toolkit

HEADER = Path(__file__).with_name("cuda_on_host.h")
_AXES = ("x", "y", "z")
_SIGNATURE = re.compile(
    r'extern "C" __global__ void (?:__launch_bounds__\(\d+\) )?(\w+)\(([^)]*)\) \{'
)

_WAITS = re.compile(r"(__device__ void tvm_builtin_ptx_cp_async_\w+\(\) )\{[^}]*\}")
_COPIES = re.compile(
    r"__device__ void (ptx_cp_async_legacy_(?:pred_)?c[ag]_(\d+)_(\d+)_(\d+))\(([^)]*)\) "
    r"\{\n.*?\n\}",
    re.DOTALL,
)
"""Of ``cp.async``, whose copies are made at once here: a wait too few is not noticed."""

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Launch:
    """One kernel: its name, the names of its arguments, and how many blocks of threads run it."""

    name: str
    arguments: tuple[str, ...]
    grid: tuple[int, int, int]
    threads: tuple[int, int, int]


class HostProgram:
    """A module whose ``main`` calls scheduled programs, compiled for the CPU."""

    def __init__(self, mod: tvm.IRModule, device: tvm.target.Target, folder: Path) -> None:
        self.mod = mod
        self.source = cuda_source(mod, device)
        self.launches = {
            str(gv.name_hint): _launches(str(gv.name_hint), func, self.source)
            for gv, func in mod.functions.items()
            if isinstance(func, tirx.PrimFunc)
        }
        self._library = ctypes.CDLL(str(_compile(self.source, self.launches, folder)))

    def __call__(self, *inputs: Array) -> list[Array]:
        """Run ``main``; nested results are flattened, in order."""
        main = self.mod["main"]
        values: dict[relax.Var, Any] = dict(zip(main.params, inputs, strict=True))
        for block in main.body.blocks:
            for binding in block.bindings:
                values[binding.var] = self._value(binding.value, values)
        result = self._value(main.body.body, values)
        return list(result) if isinstance(result, tuple) else [result]

    def _value(self, expr: relax.Expr, values: dict[relax.Var, Any]) -> Any:
        match expr:
            case relax.Var():
                return values[expr]
            case tvm.ir.GenericConst():
                return expr.value.numpy()
            case relax.Tuple():
                return tuple(self._value(field, values) for field in expr.fields)
            case relax.TupleGetItem():
                return self._value(expr.tuple_value, values)[expr.index]
            case relax.Call() if expr.op.name == "relax.call_tir":
                return self._run(expr, self._value(expr.args[1], values))
            case _:
                raise NotImplementedError(str(expr))

    def _run(self, call: relax.Call, inputs: Sequence[Array]) -> Any:
        types = [call.ty] if isinstance(call.ty, relax.TensorType) else list(call.ty.fields)
        # Garbage, so that what is not written shows.
        outputs = [np.full([int(d) for d in ty.shape], 77, dtype=str(ty.dtype)) for ty in types]
        name = str(call.args[0].name_hint)
        params = [str(param.name) for param in self.mod[name].params]
        arrays = [*(np.ascontiguousarray(array) for array in inputs), *outputs]
        by_name = dict(zip(params, arrays, strict=True))
        for buffer in _intermediates(self.mod[name]):
            shape = [int(d) for d in buffer.shape]
            by_name[str(buffer.name).replace(".", "_")] = np.full(
                shape, 77, dtype=str(buffer.dtype)
            )
        for launch in self.launches[name]:
            pointers = (ctypes.c_void_p * len(launch.arguments))(
                *(by_name[argument].ctypes.data for argument in launch.arguments)
            )
            extents = [(ctypes.c_int * 3)(*size) for size in (launch.grid, launch.threads)]
            getattr(self._library, f"run_{launch.name}")(pointers, *extents)
        return outputs[0] if isinstance(call.ty, relax.TensorType) else tuple(outputs)


def cuda_source(mod: tvm.IRModule, device: tvm.target.Target) -> str:
    """The CUDA that TVM generates from a lowered module."""
    found: list[str] = []

    def walk(module: Any) -> None:
        for imported in module.imports:
            if "cuda" in imported.kind or imported.kind == "c":
                found.append(str(imported.inspect_source()))
            walk(imported)

    kernels = {gv: f for gv, f in mod.functions.items() if isinstance(f, tirx.PrimFunc)}
    named = {gv: func.with_attr("global_symbol", str(gv.name_hint)) for gv, func in kernels.items()}
    with tvm.transform.PassContext(config=PASSES):
        walk(tvm.compile(tvm.IRModule(named), target=device).mod)
    assert len(found) == 1
    return found[0]


def _launches(name: str, func: tirx.PrimFunc, source: str) -> list[Launch]:
    """The kernels of one program, in its order."""
    signatures = {
        match[1]: re.findall(r"(\w+)_ptr\b", match[2]) for match in _SIGNATURE.finditer(source)
    }
    names = [f"{name}_kernel", *(f"{name}_kernel_{i}" for i in range(1, 99))]
    found = []
    for kernel, extents in zip(names, _nests(func), strict=False):
        grid, threads = (
            tuple(extents.get(f"{kind}.{axis}", 1) for axis in _AXES)
            for kind in ("blockIdx", "threadIdx")
        )
        found.append(Launch(kernel, tuple(signatures[kernel]), grid, threads))
    return found


def _nests(func: tirx.PrimFunc) -> list[dict[str, int]]:
    """Extents of thread axes of each outermost nest."""
    found = []
    for nest in _outermost(func.body):
        extents: dict[str, int] = {}

        def note(loop: tirx.For, extents: dict[str, int] = extents) -> None:
            if loop.thread_binding is not None:
                extents[str(loop.thread_binding.thread_tag)] = int(loop.extent)

        def note_own(attr: tirx.AttrStmt, extents: dict[str, int] = extents) -> None:
            # Of programs that bind threads by themselves.
            if attr.attr_key == "thread_extent":
                extents[str(attr.node.thread_tag)] = int(attr.value)

        tvm_ffi.structural_walk(nest, [(tirx.For, note), (tirx.AttrStmt, note_own)])
        found.append(extents)
    return found


def _outermost(body: tirx.Stmt) -> list[tirx.Stmt]:
    if isinstance(body, tirx.SeqStmt):
        return [nest for part in body.seq for nest in _outermost(part)]
    if isinstance(body, s_tir.SBlockRealize):
        return _outermost(body.block.body)
    if isinstance(body, tirx.AttrStmt) and body.attr_key.startswith("pragma"):
        return _outermost(body.body)
    return [body]


def _intermediates(func: tirx.PrimFunc) -> list[Any]:
    """Buffers in global memory between the kernels of one program."""
    block = func.body.block if isinstance(func.body, s_tir.SBlockRealize) else None
    buffers = list(block.alloc_buffers) if block is not None else []
    return [buffer for buffer in buffers if buffer.scope() in ("", "global")]


def _arguments(signature: str) -> str:
    """What a kernel is called with; tensors begin where their memory does."""
    found, pointers = [], 0
    for part in signature.split(","):
        kind, name = part.strip().rsplit(" ", 1)
        if "*" in kind:
            found.append(f"({kind.replace('__restrict__', '')})args[{pointers}]")
            pointers += 1
        elif name.startswith("elem_offset"):
            found.append("0")
        else:
            raise NotImplementedError(f"a kernel takes '{part.strip()}'")
    return ", ".join(found)


def _copy_at_once(match: re.Match[str]) -> str:
    name, count, to_bytes, from_bytes, parameters = match.groups()
    target = f"(char*)dst + dst_off * {to_bytes}"
    copied = f"memcpy({target}, (char*)src + src_off * {from_bytes}, {count});"
    if "predicate" in parameters:
        copied = f"if (predicate) {copied} else memset({target}, 0, {count});"
    return f"__device__ void {name}({parameters}) {{ {copied} }}"


def _compile(source: str, launches: dict[str, list[Launch]], folder: Path) -> Path:
    text = re.sub(r"#include <(mma|cuda)\.h>", "", source)
    text = text.replace("__shared__ alignas(64)", "alignas(64) static")
    text = re.sub(
        r"extern __shared__ __align__\(64\) uchar (\w+)\[\];",
        r"uchar* \1 = cuda_on_host::dynamic_shared;",
        text,
    )
    text = _WAITS.sub(r"\1{}", text)
    text = _COPIES.sub(_copy_at_once, text)
    entries = []
    for launch in (launch for group in launches.values() for launch in group):
        match = next(m for m in _SIGNATURE.finditer(source) if m[1] == launch.name)
        arguments = _arguments(match[2])
        entries.append(
            f'extern "C" void run_{launch.name}(void** args, const int* grid, const int* threads) '
            f"{{ cuda_on_host::launch(grid, threads, [&] {{ {launch.name}({arguments}); }}); }}\n"
        )
    program, library = folder / "kernels.cc", folder / "kernels.so"
    # Here, for headers of CUDA's that others include behind the model have members of that name.
    header = f'#include "{HEADER}"\n#define blockDim (cuda_on_host::extents)\n'
    program.write_text(f"{header}{text}\n{''.join(entries)}", encoding="utf-8")
    fused = ["-mfma", "-ffp-contract=fast", "-fexpensive-optimizations"]
    command = ["g++", "-std=c++17", "-O1", *(fused if "fma" in cpu_flags_here() else [])]
    command += ["-w", "-shared", "-fPIC", f"-I{find_toolkit().include}"]
    subprocess.run([*command, "-o", str(library), str(program)], check=True)
    return library
