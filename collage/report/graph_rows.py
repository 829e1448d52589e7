"""What a report says of a model's graph: its bindings, its partitions, and what was not chosen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


def shape_text(shape: Sequence[int]) -> str:
    """A tensor's shape as the report shows it, for example ``1x64x56x56``; a scalar is ``()``.

    Examples
    --------
    >>> shape_text((1, 64, 56, 56)), shape_text(())
    ('1x64x56x56', '()')
    """
    return "x".join(str(int(extent)) for extent in shape) or "()"


@dataclass(frozen=True)
class NodeInfo:
    """One binding of the dataflow block.

    Attributes
    ----------
    index : int
        Its dataflow-graph index.
    name : str
        The bound variable's name.
    op : str
        The operator, without the ``relax.`` prefix, for example ``nn.conv2d``.
    shape, dtype : str
        Of the output, as :func:`shape_text` writes them; several outputs are joined by commas.
    inputs : list of int
        Indices of the bindings it reads, without the model's inputs and constants.

    Examples
    --------
    >>> NodeInfo(1, "lv1", "nn.relu", "1x64x56x56", "float32", inputs=[0]).op
    'nn.relu'
    """

    index: int
    name: str
    op: str
    shape: str
    dtype: str
    inputs: list[int]


@dataclass(frozen=True)
class PartitionInfo:
    """One chosen partition.

    Attributes
    ----------
    id : int
        Position in execution order.
    backend : str
        The backend's name; with its options when two targets share a backend.
    nodes : list of int
        Node indices, ascending.
    composites : list of str
        Names of the pattern triples that matched, in topological order.
    rule : str
        The partition rule that found it.
    median_sec, spread_sec : float
        Measured cost of one call on its own; the median is None when it was never measured.
    workload_key : str
        Partitions with the same key were measured once.
    inline : bool
        Host-side bindings that cost nothing and belong to no backend.
    guess_sec : float or None
        About what a call takes, where there was no time to measure it.

    Examples
    --------
    >>> names = ["onednn.conv2d_relu"]
    >>> part = PartitionInfo(0, "onednn", [0, 1], names, "joined", 1e-3, 1e-5, "2d71")
    >>> part.nodes, part.inline
    ([0, 1], False)
    """

    id: int
    backend: str
    nodes: list[int]
    composites: list[str]
    rule: str
    median_sec: float | None
    spread_sec: float
    workload_key: str
    inline: bool = False
    guess_sec: float | None = None


@dataclass(frozen=True)
class Alternative:
    """One candidate that the search considered, chosen or not.

    ``status`` is a ``CostStatus`` value; ``reason`` says why an invalid one is invalid. Between
    ``low_sec`` and ``high_sec`` lies the median with 95 %, of ``n`` samples; None below six.

    Examples
    --------
    >>> Alternative("tvm", [0], [], "fuse_ops", "timed_out", None, 0.0, reason="over 4 s").chosen
    False
    """

    backend: str
    nodes: list[int]
    composites: list[str]
    rule: str
    status: str
    median_sec: float | None
    spread_sec: float
    reason: str = ""
    chosen: bool = False
    low_sec: float | None = None
    high_sec: float | None = None
    n: int = 0


@dataclass(frozen=True)
class RejectionInfo:
    """A pattern that matched at a node, and the reason its predicate gave for saying no.

    Examples
    --------
    >>> RejectionInfo(3, "onednn", "onednn.conv2d", "dilated").reason
    'dilated'
    """

    node: int
    backend: str
    pattern: str
    reason: str
