"""Made-up but realistic report data: a ResNet-50-like graph, three backends, all kinds of ends."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass, field

from collage.report import (
    Alternative,
    EndToEnd,
    NodeInfo,
    PartitionInfo,
    RejectionInfo,
    Report,
    SearchStats,
)

BLOCKS = ((3, 256, 56), (4, 512, 28), (6, 1024, 14), (3, 2048, 7))


@dataclass
class _Graph:
    nodes: list[NodeInfo] = field(default_factory=list)
    groups: list[list[int]] = field(default_factory=list)

    def op(self, op: str, shape: str, *inputs: int) -> int:
        index = len(self.nodes)
        self.nodes.append(NodeInfo(index, f"lv{index}", op, shape, "float32", list(inputs)))
        return index

    def conv(
        self, source: int | None, shape: str, residual: int | None = None, relu: bool = True
    ) -> int:
        inputs = () if source is None else (source,)
        group = [self.op("nn.conv2d", shape, *inputs)]
        group.append(self.op("add", shape, group[-1]))
        if residual is not None:
            group.append(self.op("add", shape, group[-1], residual))
        if relu:
            group.append(self.op("nn.relu", shape, group[-1]))
        self.groups.append(group)
        return group[-1]


def resnet_graph() -> _Graph:
    """ResNet-50 after normalization: convolution, bias, residual add and relu as operators."""
    g = _Graph()
    x = g.conv(None, "1x64x112x112")
    x = g.op("nn.max_pool2d", "1x64x56x56", x)
    g.groups.append([x])
    for count, channels, size in BLOCKS:
        for i in range(count):
            inner, outer = f"1x{channels // 4}x{size}x{size}", f"1x{channels}x{size}x{size}"
            skip = g.conv(x, outer, relu=False) if i == 0 else x
            y = g.conv(g.conv(x, inner), inner)
            x = g.conv(y, outer, residual=skip)
    for op, shape in (("mean", "1x2048x1x1"), ("reshape", "1x2048")):
        x = g.op(op, shape, x)
        g.groups.append([x])
    matmul = g.op("matmul", "1x1000", x)
    bias = g.op("add", "1x1000", matmul)
    g.groups.append([matmul, bias])
    g.groups.append([g.op("nn.softmax", "1x1000", bias)])
    return g


def _target(backend: str, **options: str) -> str:
    return json.dumps({"backend": backend, "device": {"kind": "llvm"}, "options": options})


def resnet_report(seed: int = 0) -> Report:
    """A whole report: convolutions on oneDNN (some joined), the rest on TVM and OpenBLAS."""
    rng = random.Random(seed)
    g = resnet_graph()
    joined = [g.groups[0] + g.groups[1], *g.groups[2:]]
    partitions, alternatives = [], []
    for number, group in enumerate(joined):
        ops = {g.nodes[i].op for i in group}
        backend = "onednn" if "nn.conv2d" in ops else "openblas" if "matmul" in ops else "tvm"
        if number % 7 == 5:
            backend = "tvm"
        inline = ops == {"reshape"}
        composites = [] if backend == "tvm" else [_composite(backend, ops)]
        cost = rng.uniform(2e-4, 1.2e-3) if "nn.conv2d" in ops else rng.uniform(3e-6, 4e-4)
        key = f"{sorted(ops)} {g.nodes[group[0]].shape}"
        rule = "host" if inline else "composite" if composites else "op kind"
        partitions.append(
            PartitionInfo(
                id=number,
                backend="tvm" if inline else backend,
                nodes=group,
                composites=[] if inline else composites,
                rule=rule,
                median_sec=None if inline else cost,
                spread_sec=0.0 if inline else cost * 0.03,
                workload_key="" if inline else key,
                inline=inline,
            )
        )
        if not inline:
            alternatives += _alternatives(rng, group, backend, composites, rule, cost)
    best = sum(p.median_sec or 0.0 for p in partitions) * 1.02
    return Report(
        model="resnet50.onnx",
        created="2026-03-01T12:30:00+00:00",
        device={"name": "AMD EPYC 9B14", "architecture": "x86_64", "cores": "2", "threads": "2"},
        versions={"collage": "0.1.0", "tvm": "0.27.0", "onednn": "3.2.0", "openblas": "0.3.34"},
        targets=[_target("tvm"), _target("onednn", layout="auto"), _target("openblas")],
        nodes=g.nodes,
        partitions=partitions,
        alternatives=alternatives,
        rejections=[
            RejectionInfo(
                node=group[0],
                backend="openblas",
                pattern="openblas.conv1x1",
                reason="strides (2, 2) are not (1, 1)",
            )
            for group in g.groups[5:40:9]
            if g.nodes[group[0]].op == "nn.conv2d"
        ],
        end_to_end=[
            EndToEnd("search", best, best * 0.01, 40, True, "", "search"),
            EndToEnd("single:onednn", best * 1.09, best * 0.02, 40, False),
            EndToEnd("single:openblas", best * 6.4, best * 0.1, 40, False),
            EndToEnd("single:tvm", best * 7.2, best * 0.2, 40, False),
            EndToEnd("greedy", best * 1.11, best * 0.02, 40, False),
            EndToEnd("onnxruntime", best * 1.04, best * 0.03, 40, False, "2 threads", "peer"),
            EndToEnd("single:cutlass", None, 0.0, 0, False, "build failed: undefined symbol"),
        ],
        search=SearchStats(412, 63, 57, 6, 2, 141.2, 96.0, 81.5),
        outputs_max_rel_diff=3.4e-6,
    )


def _composite(backend: str, ops: set[str]) -> str:
    parts = {"nn.conv2d": "conv2d", "matmul": "matmul", "add": "bias", "nn.relu": "relu"}
    names = [short for op, short in parts.items() if op in ops]
    return f"{backend}.{'_'.join(names) or 'op'}"


def _alternatives(
    rng: random.Random,
    group: list[int],
    backend: str,
    composites: list[str],
    rule: str,
    cost: float,
) -> list[Alternative]:
    found = [Alternative(backend, group, composites, rule, "valid", cost, cost * 0.03, "", True)]
    if backend != "tvm":
        slower = cost * rng.uniform(1.005, 4)
        found.append(Alternative("tvm", group, [], "op kind", "valid", slower, slower * 0.02))
        for node in group:
            part = cost * rng.uniform(0.5, 2)
            found.append(Alternative("tvm", [node], [], "op kind", "valid", part, part * 0.02))
    if len(group) >= 3:
        head = group[:2]
        if rng.random() < 0.1:
            found.append(
                Alternative(
                    "onednn", head, ["onednn.conv2d_bias"], "composite", "wrong_result", None, 0.0,
                    "largest relative difference 0.31 is over 0.001",
                )
            )  # fmt: skip
        else:
            found.append(
                Alternative(
                    "onednn", head, ["onednn.conv2d_bias"], "composite", "unknown", None, 0.0
                )
            )
    return found
