"""Sparse tensors, computed with as dense ones: their products, sums and changes of form."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, cast

import torch

aten = torch.ops.aten

_MOST = 2**26
"""Elements of a sparse tensor that is made dense."""

_FOR_DENSE = {
    aten.coalesce.default: aten.clone.default,
    aten._sparse_sum.default: aten.sum.default,
    aten._sparse_sum.dim: aten.sum.dim_IntList,
}
"""What there is for sparse tensors alone, and does with dense ones what these do."""

_NONE = cast(torch.Tensor, NotImplemented)


def _filled(
    sparse_dim: int,
    dense_dim: int,
    size: Sequence[int],
    indices: torch.Tensor,
    values: torch.Tensor,
    **_options: Any,
) -> torch.Tensor:
    """Values at their places; those of one place are added up."""
    if math.prod(size) > _MOST:
        return _NONE
    places = list(indices.unbind(0))
    return aten.index_put.default(values.new_zeros(size), places, values, True)


def _of_places(
    indices: torch.Tensor, values: torch.Tensor, size: Sequence[int], **_options: Any
) -> torch.Tensor:
    return _filled(len(indices), values.dim() - 1, size, indices, values)


def _same(x: torch.Tensor, *_given: Any, **_options: Any) -> torch.Tensor:
    return x.clone()


def holds_sparse(program: torch.export.ExportedProgram) -> bool:
    """Whether a program has sparse tensors among its values.

    Examples
    --------
    >>> net = torch.nn.ReLU()
    >>> holds_sparse(torch.export.export(net, (torch.zeros(4),)))
    False
    """
    values = (node.meta.get("val") for node in program.graph.nodes)
    return any(isinstance(x, torch.Tensor) and x.layout != torch.strided for x in values)


@contextmanager
def as_if_dense(program: torch.export.ExportedProgram) -> Iterator[None]:
    """A program that calls what is there for dense tensors, and afterwards as it was.

    PyTorch takes apart what these stand for before it asks for decompositions.

    Parameters
    ----------
    program : torch.export.ExportedProgram
        That is taken apart meanwhile.

    Yields
    ------
    None
        Meanwhile.
    """
    changed = [(node, node.target) for node in program.graph.nodes if node.target in _FOR_DENSE]
    for node, target in changed:
        node.target = _FOR_DENSE[target]
    try:
        yield
    finally:
        for node, target in changed:
            node.target = target


def sparse_ones() -> dict[Any, Callable[..., Any]]:
    """What makes sparse tensors, and what is for them alone, by operator.

    Examples
    --------
    >>> places, values = torch.tensor([[0, 1, 0], [2, 0, 2]]), torch.tensor([1.0, 2.0, 3.0])
    >>> make = aten._sparse_coo_tensor_with_dims_and_tensors.default
    >>> sparse_ones()[make](2, 0, (2, 3), places, values)
    tensor([[0., 0., 4.],
            [2., 0., 0.]])
    """
    forms = [aten._to_sparse, aten.to_sparse, aten._to_sparse_csr, aten._to_sparse_csc]
    forms += [aten._coalesce, aten.coalesce, aten._to_dense, aten.to_dense]
    return {
        **{getattr(form, name): _same for form in forms for name in form.overloads()},
        aten._sparse_coo_tensor_with_dims_and_tensors.default: _filled,
        aten.sparse_coo_tensor.indices_size: _of_places,
        aten._sparse_coo_tensor_unsafe.default: _of_places,
        aten._sparse_mm.default: torch.mm,
        aten._sparse_addmm.default: torch.addmm,
    }
