"""Weights of eight bits, of which no target has tensors: what they stand for in float32.

Networks that keep theirs so make them wider before they compute, which is exact either way.
"""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import fx
from torch._guards import detect_fake_mode
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind

aten = torch.ops.aten

_KINDS = (
    *(torch.float8_e4m3fn, torch.float8_e4m3fnuz, torch.float8_e5m2, torch.float8_e5m2fnuz),
    torch.float8_e8m0fnu,
)
_KEPT = (InputKind.BUFFER, InputKind.CONSTANT_TENSOR, InputKind.PARAMETER)
_WIDENS = (aten._to_copy.default, aten.to.dtype, aten.to.dtype_layout)
_ASSERTS = aten._assert_tensor_metadata.default
"""What PyTorch traces before it makes a tensor wider: that it is of eight bits."""

_MOVES = (
    *(aten.t.default, aten.transpose.int, aten.permute.default, aten.view.default),
    *(aten.reshape.default, aten.unsqueeze.default, aten.slice.Tensor, aten.expand.default),
    *(aten.clone.default, aten.detach.default, aten.contiguous.default, aten.alias.default),
    *(aten.select.int, aten.lift_fresh_copy.default, aten.index.Tensor, aten.squeeze.dim),
)


def with_wide_weights(program: ExportedProgram) -> ExportedProgram:
    """A program whose weights of eight bits are in float32, where it makes them wider itself.

    Parameters
    ----------
    program : ExportedProgram
        Not changed; itself where there are none.

    Returns
    -------
    ExportedProgram
        Others stay as they are, and are refused where they are used.

    Examples
    --------
    >>> class Scaled(torch.nn.Module):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.register_buffer("weight", torch.ones(2, 3).to(torch.float8_e4m3fn))
    ...     def forward(self, x):
    ...         return x @ (self.weight.float() * 0.5)
    >>> with torch.no_grad():
    ...     program = torch.export.export(Scaled(), (torch.ones(1, 2),))
    >>> with_wide_weights(program).state_dict["weight"].dtype
    torch.float32
    """
    specs = program.graph_signature.input_specs
    held: dict[str, Any] = {**program.state_dict, **program.constants}
    nodes = {node.name: node for node in program.graph.nodes if node.op == "placeholder"}
    written = {
        spec.target for spec in program.graph_signature.output_specs if spec.target is not None
    }
    found = {
        spec.arg.name: spec.target
        for spec in specs
        if spec.kind in _KEPT
        and getattr(held.get(str(spec.target)), "dtype", None) in _KINDS
        and spec.target not in written
        and _is_made_wider(nodes[spec.arg.name])
    }
    if not found:
        return program
    root = copy.deepcopy(program.graph_module)
    mode = detect_fake_mode([node.meta.get("val") for node in root.graph.nodes])
    state, constants = dict(program.state_dict), dict(program.constants)
    for node in root.graph.nodes:
        if node.name in found:
            own = held[str(found[node.name])]
            wide = own.detach().float()
            if isinstance(own, torch.nn.Parameter):
                wide = torch.nn.Parameter(wide, requires_grad=False)
            (state if found[node.name] in state else constants)[str(found[node.name])] = wide
            node.meta["val"] = mode.from_tensor(wide, static_shapes=True)
            _drop_asserts(node)
    return ExportedProgram(
        *(root, root.graph, program.graph_signature, state),
        *(dict(program.range_constraints), list(program.module_call_graph)),
        constants=constants,
        verifiers=program.verifiers,
    )


def _is_made_wider(node: fx.Node) -> bool:
    """Whether all that is computed with a tensor is computed with what was made of it."""
    for user in node.users:
        if user.target in _MOVES and user.args[0] is node:
            if not _is_made_wider(user):
                return False
        elif user.target is _ASSERTS:
            continue
        elif user.target not in _WIDENS or user.meta["val"].dtype in _KINDS:
            return False
    return bool(node.users)


def _drop_asserts(node: fx.Node) -> None:
    for user in list(node.users):
        if user.target is _ASSERTS:
            user.graph.erase_node(user)
        elif user.target in _MOVES:
            _drop_asserts(user)
