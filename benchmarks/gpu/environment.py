"""Facts of the machine that decide what works and how fast: one JSON object, each part by itself.

python -m benchmarks.gpu.environment --out out
"""

from __future__ import annotations

import argparse
import ctypes
import json
import platform
import sys
import tomllib
from collections.abc import Callable
from importlib import import_module, metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from benchmarks.gpu import device
from benchmarks.timing.machine import commit, machine, now

_ROOT = Path(__file__).resolve().parents[2]
_PEERS = ("torch", "torchvision", "transformers", "triton", "onnxruntime", "pycuda", "tensorrt")
_IMPORT_NAMES = {
    "apache-tvm": "tvm",
    "apache-tvm-ffi": "tvm_ffi",
}
"""Where the package's name is not the module's."""


def main() -> int:
    """Write ``environment.json``; the exit status is 1 when a dependency of ours is missing."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("out"))
    parser.add_argument("--quick", action="store_true", help="measure no ceilings")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    place = args.out / "environment.json"
    facts: dict[str, Any] = {}
    parts: dict[str, Callable[[], Any]] = {
        "run": lambda: {"time": now(), "commit": commit(), "argv0": sys.executable},
        "machine": machine,
        "gpu": gpu,
        "dependencies": dependencies,
        "peers": lambda: {name: _version(name) for name in _PEERS},
        "tvm": tvm_facts,
        "toolkit": toolkit,
        "backends": backends,
        "onnxruntime": onnxruntime_providers,
        "torch": torch_facts,
    }
    if not args.quick:
        parts["ceilings"] = ceilings
    for name, part in parts.items():
        try:
            facts[name] = part()
        except Exception as err:  # noqa: BLE001 - a missing part is a fact too
            facts[name] = {"error": f"{type(err).__name__}: {err}"[:500]}
        place.write_text(json.dumps(facts, indent=1, default=str) + "\n", encoding="utf-8")
        print(f"{name}: {json.dumps(facts[name], default=str)}", flush=True)
    missing = [n for n, v in facts["dependencies"].items() if v == "missing"]
    if missing:
        print(f"MISSING: {', '.join(missing)}", flush=True)
    return int(bool(missing))


def gpu() -> dict[str, str]:
    """How many may be used; name, driver, memory, clocks of the first."""
    facts = device.query(
        "name", "driver_version", "memory.total", "clocks.max.sm", "power.limit", "compute_mode"
    )
    return {"visible": ",".join(device.visible()), **facts, **device.clocks()}


def dependencies() -> dict[str, str]:
    """Every package that ours needs, imported: its version, or ``missing``."""
    with (_ROOT / "pyproject.toml").open("rb") as file:
        wanted = tomllib.load(file)["project"]["dependencies"]
    found = {}
    for requirement in wanted:
        name = requirement
        for stop in "<>=!~;[ ":
            name = name.partition(stop)[0]
        module = _IMPORT_NAMES.get(name, name)
        if find_spec(module) is None:
            found[name] = "missing"
        else:
            import_module(module)
            found[name] = _version(name)
    return found


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        pass
    if find_spec(name.replace("-", "_")) is None:
        return "missing"
    return str(getattr(import_module(name.replace("-", "_")), "__version__", "present"))


def tvm_facts() -> dict[str, Any]:
    """What TVM sees of the device."""
    import tvm

    cuda = tvm.cuda(0)
    facts: dict[str, Any] = {"version": tvm.__version__, "cuda exists": bool(cuda.exist)}
    if cuda.exist:
        names = ("device_name", "compute_version", "max_shared_memory_per_block", "warp_size")
        facts.update({name: getattr(cuda, name) for name in names})
        facts["api version"] = cuda.api_version
    return facts


def toolkit() -> dict[str, Any]:
    """The compiler, the headers and the libraries that the backends find."""
    from collage.backends.toolchain import cuda_toolkit

    facts: dict[str, Any] = {}
    try:
        facts["nvcc"] = str(cuda_toolkit.find_toolkit())
    except Exception as err:  # noqa: BLE001 - the rest may be there all the same
        facts["nvcc"] = f"{type(err).__name__}: {err}"
    for header in ("cublasLt.h", "cudnn.h", "cutlass/cutlass.h"):
        facts[header] = str(cuda_toolkit.find_header_dir(header))
    for soname, version in (
        ("libcudart.so.13", "cudaRuntimeGetVersion"),
        ("libcublasLt.so.13", "cublasLtGetVersion"),
        ("libcudnn.so.9", "cudnnGetVersion"),
    ):
        path = cuda_toolkit.find_library(soname)
        facts[soname] = f"{path} {_library_version(path, version)}"
    return facts


def _library_version(path: Path | None, function: str) -> str:
    if path is None:
        return ""
    try:
        library = ctypes.CDLL(str(path))
    except OSError as err:
        return f"does not load: {err}"
    if function == "cudaRuntimeGetVersion":
        number = ctypes.c_int()
        library.cudaRuntimeGetVersion(ctypes.byref(number))
        return str(number.value)
    getter = getattr(library, function)
    getter.restype = ctypes.c_size_t
    return str(getter())


def backends() -> dict[str, Any]:
    """Every backend's own answer."""
    from collage.backends.contract.registry import backend_names, get_backend

    answers = {}
    for name in backend_names():
        found = get_backend(name).probe()
        answers[name] = dict(found.versions) if found.usable else f"{found.reason}; {found.remedy}"
    return answers


def onnxruntime_providers() -> list[str]:
    """What onnxruntime could run on."""
    import onnxruntime

    return list(onnxruntime.get_available_providers())


def torch_facts() -> dict[str, Any]:
    """What PyTorch sees, and the libraries it brings."""
    import torch

    facts: dict[str, Any] = {"version": torch.__version__, "cuda": torch.version.cuda}
    if torch.cuda.is_available():
        properties = torch.cuda.get_device_properties(0)
        facts["device"] = str(properties)
        facts["cudnn"] = torch.backends.cudnn.version()
    return facts


def ceilings() -> dict[str, float]:
    """Copy bandwidth (bytes read plus written) and the rate of a large float16 product."""
    import torch

    if not torch.cuda.is_available():
        return {}
    source = torch.randn(1 << 30, device="cuda", dtype=torch.float32)
    target = torch.empty_like(source)
    copy_sec = _median_sec(lambda: target.copy_(source))
    a = torch.randn(8192, 8192, device="cuda", dtype=torch.float16)
    b = torch.randn(8192, 8192, device="cuda", dtype=torch.float16)
    product_sec = _median_sec(lambda: a @ b)
    return {
        "copy_tb_per_sec": 2 * source.nbytes / copy_sec / 1e12,
        "float16_product_tflops": 2 * 8192**3 / product_sec / 1e12,
    }


def _median_sec(call: Callable[[], Any]) -> float:
    import torch

    for _ in range(3):
        call()
    seconds: list[float] = []
    for _ in range(10):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        call()
        end.record()
        end.synchronize()
        seconds.append(begin.elapsed_time(end) * 1e-3)
    return sorted(seconds)[5]


if __name__ == "__main__":
    print(platform.python_version(), flush=True)
    sys.exit(main())
