"""cuDNN's own word on our graphs: it plans them for an H200 that is described, not here.

Everything but running them is the library itself: it takes the graphs, proposes engines, compiles
kernels, and reads the plans that we saved.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from benchmarks.gpu.cases import case_of
from benchmarks.gpu.cases.compiling import cuda_target, partition_case
from collage.backends.compile import external_functions
from collage.backends.contract import BuildContext
from collage.backends.cudnn.backend import CudnnBackend
from collage.backends.cudnn.codegen import render_table
from collage.backends.cudnn.library import TEMPLATES, find_installation
from collage.backends.cudnn.options import CudnnOptions
from collage.backends.cudnn.partition import read_partition
from collage.backends.cudnn.problem import Graph
from collage.backends.toolchain import compiling, cuda_toolkit
from collage.config import Config

pytestmark = pytest.mark.cuda

HERE = Path(__file__).with_name("absent_gpu")

CASES = {
    "cudnn": (
        "conv2d_bias_add_relu-float16-2x32x9x7-64x3x3",
        "matmul_bias_gelu-float16-2x24x64x96",
        "max_pool2d-float16-2x15x13x32",
        "layer_norm-float16-2x17x768",
        "rms_norm-bfloat16-2x17x768",
        "attention-float16-causal",
        "attention_bias-float16-shared",
    ),
    "cudnn_conv": ("conv1d_transpose_relu-bfloat16-small",),
}


def graphs_of_cases() -> dict[str, Graph]:
    device, graphs = cuda_target(), {}
    for family, names in CASES.items():
        for name in names:
            module = partition_case(case_of(family, name), device).module
            (function,) = external_functions(module, CudnnBackend())
            graphs[name] = read_partition(function, CudnnOptions(), 90).graph
    return graphs


def link_program(graphs: list[Graph], folder: Path, context: BuildContext) -> Path:
    """What plans the graphs, beside a driver that runs nothing."""
    installation, toolkit = find_installation(), cuda_toolkit.find_toolkit()
    table = folder / "graphs.c"
    table.write_text(render_table(CudnnOptions(), graphs), encoding="utf-8")
    include = [f"-I{TEMPLATES}", *compiling.ffi_include_flags()]
    made = compiling.compile_object(table, table.with_suffix(".o"), context, include)
    include += ["-isystem", str(installation.include), "-isystem", str(toolkit.include)]
    flags = ["-O0", *include]
    depends = [*TEMPLATES.glob("*.h"), TEMPLATES / "cudnn_program.cc"]
    main = compiling.cached_compilation(HERE / "plan.cc", context, flags, depends).run()
    program, libraries = folder / "plan", [installation.library, cuda_toolkit.cudart().path]
    compiling.run_tool(
        [
            *(context.cxx, "-o", str(program), str(main), str(made), *map(str, libraries)),
            "-Wl,--allow-shlib-undefined",
        ]
    )
    driver = folder / "libcuda.so.1"
    compiling.run_tool(
        [context.cxx, "-x", "c", "-shared", "-fPIC", "-o", str(driver), str(HERE / "driver.c")]
    )
    return program


@pytest.fixture(scope="module")
def planned(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Graph, str]]:
    """Each case's graph, and what the program wrote of it."""
    folder, graphs = tmp_path_factory.mktemp("absent"), graphs_of_cases()
    context = BuildContext(Config.from_environment().cache_dir, folder / "work")
    program = link_program(list(graphs.values()), folder, context)
    found = [
        cuda_toolkit.find_library(name) for name in ("libcublasLt.so.13", cuda_toolkit.NVRTC[0])
    ]
    libraries = [find_installation().library, cuda_toolkit.cudart().path, *filter(None, found)]
    search = ":".join([str(folder), *(str(library.parent) for library in libraries)])
    done = subprocess.run(
        [str(program), str(HERE / "h200.json"), str(folder)],
        env={**os.environ, "LD_LIBRARY_PATH": search},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    texts = [(folder / f"{n}.txt").read_text(encoding="utf-8") for n in range(len(graphs))]
    return {n: (graph, text) for (n, graph), text in zip(graphs.items(), texts, strict=True)}


@pytest.mark.parametrize("name", [name for names in CASES.values() for name in names])
def test_cudnn_plans_a_graph_and_reads_its_plan_again(
    name: str, planned: dict[str, tuple[Graph, str]]
) -> None:
    graph, text = planned[name]
    engine, _, plan = text.partition("\n")
    assert engine.startswith("eng"), text
    described = json.loads(plan.rstrip("\0"))["operationGraph"]
    inside = [node["subgraph"] for node in described["nodes"] if node.get("subgraph")]
    tensors = [tensor for part in (described, *inside) for tensor in part["tensors"]]
    bound = [sorted(t["dim"]) for t in tensors if not t["isVirtual"] and not t["isByValue"]]
    views = [graph.slot_tensor(slot).view for slot in range(graph.num_slots)]
    assert sorted(bound) == sorted(sorted(view.shape) for view in views)
