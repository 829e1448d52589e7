"""Writes a graph of PyTorch's node by node, with what is known of every result."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.utils import _pytree as pytree

aten = torch.ops.aten


class Fakes:
    """Tensors without memory, all of one mode: those of several cannot be computed with.

    Examples
    --------
    >>> Fakes().like(torch.zeros(2, 3)).shape
    torch.Size([2, 3])
    """

    def __init__(self) -> None:
        self.mode = FakeTensorMode(allow_non_fake_inputs=True, shape_env=ShapeEnv())

    def like(self, value: Any) -> Any:
        """A stand-in for a tensor, or for those in a list; a number is one of rank 0."""
        if isinstance(value, list | tuple):
            return tuple(map(self.like, value))
        if isinstance(value, torch.Tensor):
            with self.mode:
                return torch.empty(value.shape, dtype=value.dtype, device=value.device)
        for kind, dtype in _NUMBERS.items():
            if isinstance(value, kind):
                with self.mode:
                    return torch.empty((), dtype=dtype)
        return value

    def of(self, target: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """What an operator makes of what stands in for its arguments.

        Parameters
        ----------
        target : callable
            The operator.
        args, kwargs : object
            Stand-ins and plain values.

        Returns
        -------
        object
            A stand-in, or several.
        """
        with self.mode:
            return target(*args, **kwargs)


_NUMBERS = {torch.SymBool: torch.bool, torch.SymInt: torch.int64, torch.SymFloat: torch.float32}


class Writer:
    """A graph that is being written.

    Parameters
    ----------
    fakes : Fakes
        What stands in for tensors.

    Examples
    --------
    >>> writer = Writer(Fakes())
    >>> x = writer.take("x", torch.zeros(2, 3))
    >>> writer.emit(aten.sum.dim_IntList, x, [1]).meta["val"].shape
    torch.Size([2])
    """

    def __init__(self, fakes: Fakes) -> None:
        self.graph = fx.Graph()
        self.fakes = fakes

    def take(self, name: str, like: Any) -> fx.Node:
        """One more input.

        Parameters
        ----------
        name : str
            What it is called.
        like : Tensor
            What will be given.

        Returns
        -------
        fx.Node
            The new one.
        """
        node = self.graph.placeholder(name)
        # A graph has no names of Python's own functions (`input`), a program's signature has.
        node.name = name
        node.meta["val"] = self.fakes.like(like)
        return node

    def emit(self, target: Callable[..., Any], *args: Any, **kwargs: Any) -> fx.Node:
        """A call of an operator.

        Parameters
        ----------
        target : callable
            The operator.
        *args, **kwargs
            Nodes and plain values.

        Returns
        -------
        fx.Node
            The new one.
        """
        node = self.graph.call_function(target, args, kwargs)
        given = pytree.tree_map_only(fx.Node, lambda one: one.meta["val"], (args, kwargs))
        node.meta["val"] = self.fakes.of(target, *given)
        return node

    def in_order(self, one: Any) -> Any:
        """A tensor whose elements lie in order, as functions are traced with; else what it is."""
        if not isinstance(one, fx.Node) or not isinstance(one.meta["val"], torch.Tensor):
            return one
        return self.emit(aten.clone.default, one, memory_format=torch.contiguous_format)

    def copy(self, node: fx.Node, env: Mapping[fx.Node, Any]) -> fx.Node:
        """A node with other operands in place of its own.

        Parameters
        ----------
        node : fx.Node
            Of another graph.
        env : mapping of fx.Node to object
            What stands for each of its operands.

        Returns
        -------
        fx.Node
            The new one.
        """
        target = node.target
        if target is aten._to_copy.default and not isinstance(node.args[0], fx.Node):
            # A number in a function of rows, where operands are of several types.
            return self.emit(aten.full.default, [], node.args[0], dtype=node.kwargs["dtype"])
        args, kwargs = pytree.tree_map_only(fx.Node, env.__getitem__, (node.args, node.kwargs))
        made = self.graph.create_node(node.op, target, tuple(args), dict(kwargs), node.name)
        made.meta = {**node.meta, "val": self.fakes.like(node.meta.get("val"))}
        return made

    def marked(self, target: Callable[..., Any], args: Sequence[Any], like: Any) -> fx.Node:
        """A node that nobody can call, which a later stage takes apart.

        Parameters
        ----------
        target : callable
            What marks it.
        args : sequence
            What it reads.
        like : tuple of Tensor
            What it gives.

        Returns
        -------
        fx.Node
            The new one.
        """
        node = self.graph.call_function(target, tuple(args))
        node.meta["val"] = self.fakes.like(like)
        return node

    def constant(self, value: int | bool) -> fx.Node:
        """A number of rank 0."""
        dtype = torch.bool if isinstance(value, bool) else torch.int64
        return self.emit(aten.full.default, [], value, dtype=dtype)
