"""Candidate partitions: a set of bindings and the target that would run it."""

from __future__ import annotations

from dataclasses import dataclass

from collage.backends.contract import BackendTarget


@dataclass(frozen=True)
class Composite:
    """One pattern match inside a candidate: it becomes a Relax ``Composite`` function.

    Attributes
    ----------
    name : str
        The pattern triple's name, for example ``onednn.conv2d_bias_relu``.
    nodes : int
        Bit set of dataflow-graph indices.

    Examples
    --------
    >>> Composite("onednn.conv2d_bias_relu", nodes=0b111)
    Composite(name='onednn.conv2d_bias_relu', nodes=7)
    """

    name: str
    nodes: int


@dataclass(frozen=True)
class Candidate:
    """A sub-graph and the target that would run it.

    Attributes
    ----------
    nodes : int
        Bit set of dataflow-graph indices.
    target : BackendTarget
        Who would run it.
    composites : tuple of Composite
        For an external backend, how the nodes divide into pattern matches, in topological order.
        Empty for native partitions.
    rule : str
        The partition rule that found it, for explanations.
    inline : bool
        Host-side bindings (tuples, tuple items, shape arithmetic) that stay in ``main`` and cost
        nothing.

    Examples
    --------
    >>> from collage.targets import resolve_targets
    >>> tvm, onednn = resolve_targets(["llvm", "onednn"])
    >>> match = Composite("onednn.conv2d_bias", nodes=0b011)
    >>> region = Candidate(match.nodes, onednn, (match,), rule=match.name)
    >>> region.backend
    'onednn'
    """

    nodes: int
    target: BackendTarget
    composites: tuple[Composite, ...] = ()
    rule: str = ""
    inline: bool = False

    def __hash__(self) -> int:
        # What is equal has equal nodes and target; composites and rule seldom differ besides. The
        # length is there because masks alone collide, see `mask_key`.
        return hash((self.nodes.bit_length(), self.nodes, self.target))

    @property
    def backend(self) -> str:
        """Its target's name: two targets of one backend are told apart everywhere."""
        return self.target.name
