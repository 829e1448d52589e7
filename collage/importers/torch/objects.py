"""What programs hold besides tensors: generators of random numbers, objects of libraries."""

from __future__ import annotations

from typing import Any

from torch.export.graph_signature import CustomObjArgument

from collage.backends.contract.errors import ModelError

_GENERATOR = "torch._C.Generator"


def require_no_objects(program: Any) -> None:
    """Refuse a program that asks an object for something.

    Parameters
    ----------
    program : torch.export.ExportedProgram
        As it was traced.

    Raises
    ------
    ModelError
        Names the operators that are given the object, and says what else they can be given.
    """
    nodes = {node.name: node for node in program.graph.nodes if node.op == "placeholder"}
    for spec in program.graph_signature.input_specs:
        if not isinstance(spec.arg, CustomObjArgument):
            continue
        users = sorted({_name(user.target) for user in nodes[spec.arg.name].users})
        if not users:
            continue
        asked = ", ".join(users)
        if spec.arg.class_fqn == _GENERATOR:
            raise ModelError(
                f"it draws random numbers from a torch.Generator ({asked}); draw them outside of "
                "the network and give them to it as an input, or, where they are to be the same "
                "in every call, keep them as a buffer (register_buffer)",
                value=asked,
            )
        raise ModelError(
            f"it holds an object of the class {spec.arg.class_fqn} ({asked}), of which only its "
            "library knows what it computes; keep what it holds in tensors (register_buffer)",
            value=asked,
        )


def _name(target: object) -> str:
    return str(getattr(target, "overloadpacket", target)).removeprefix("aten.")
