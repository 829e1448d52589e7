"""The nodes of a graph by what is cut out of it before they can run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import onnx

from collage.importers.onnx.courses.rounds import DOMAIN, ROUNDS
from collage.importers.onnx.courses.values import Scope, renamed
from collage.importers.onnx.known import names_used


@dataclass
class Stages:
    """The nodes of a graph by how many nodes that were cut out come before them."""

    straight: dict[int, list[onnx.NodeProto]] = field(default_factory=dict)
    cut: dict[int, list[onnx.NodeProto]] = field(default_factory=dict)

    @property
    def count(self) -> int:
        return max([*self.straight, *self.cut], default=-1) + 1

    def from_stage(self, stage: int) -> Iterator[onnx.NodeProto]:
        for later in range(stage, self.count):
            yield from self.straight.get(later, [])
            yield from self.cut.get(later, [])


def stages_of(nodes: Sequence[onnx.NodeProto]) -> Stages:
    stages, behind = Stages(), dict[str, int]()
    for node in nodes:
        stage = max((behind.get(name, 0) for name in names_used([node])), default=0)
        is_cut = node.op_type == "If" or (node.op_type, node.domain) == (ROUNDS, DOMAIN)
        (stages.cut if is_cut else stages.straight).setdefault(stage, []).append(node)
        behind.update(dict.fromkeys(node.output, stage + is_cut))
    return stages


def without_identities(
    nodes: Sequence[onnx.NodeProto], scope: Scope, names: dict[str, str]
) -> list[onnx.NodeProto]:
    """Nodes that compute something; what the others give is there under another name.

    Parameters
    ----------
    nodes : sequence of onnx.NodeProto
        In order.
    scope : dict of str to Value
        What is there.
    names : dict of str to str
        Other names of it; gets more.

    Returns
    -------
    list of onnx.NodeProto
        Copies that read by those names.
    """
    left = []
    for node in nodes:
        (copy,) = renamed([node], names)
        if copy.op_type == "Identity" and copy.input[0] in scope:
            names[copy.output[0]] = copy.input[0]
        else:
            left.append(copy)
    return left


def copies_under(
    nodes: Sequence[onnx.NodeProto], prefix: str, names: dict[str, str]
) -> list[onnx.NodeProto]:
    """Nodes that give their results other names.

    Parameters
    ----------
    nodes : sequence of onnx.NodeProto
        In order.
    prefix : str
        Before every name.
    names : dict of str to str
        Gets the new names.

    Returns
    -------
    list of onnx.NodeProto
        Copies.
    """
    own = {name: prefix + name for node in nodes for name in node.output if name}
    names |= own
    found = renamed(nodes, own)
    for node in found:
        node.output[:] = [own.get(name, name) for name in node.output]
    return found
