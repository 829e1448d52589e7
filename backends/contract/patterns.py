"""What a backend can run: patterns, and predicates that answer with a reason."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from tvm import relax
from tvm.relax.dpl import DFPattern


@dataclass(frozen=True)
class Verdict:
    """A predicate's answer: yes, or no with a reason a user can read.

    Examples
    --------
    >>> bool(Verdict.yes())
    True
    >>> verdict = Verdict.no("only float32 is supported")
    >>> bool(verdict), verdict.reason
    (False, 'only float32 is supported')
    """

    accepted: bool
    reason: str = ""

    @classmethod
    def yes(cls) -> Verdict:
        return cls(True)

    @classmethod
    def no(cls, reason: str) -> Verdict:
        return cls(False, reason)

    def __bool__(self) -> bool:
        return self.accepted


def _no_users(_: relax.Expr) -> Sequence[relax.Expr]:
    return ()


@dataclass(frozen=True)
class Match:
    """What a pattern matched, as a predicate sees it.

    Attributes
    ----------
    root : relax.Expr
        The expression the whole pattern matched.
    annotated : mapping of str to relax.Expr
        The expressions matched by the triple's named sub-patterns. A variable bound inside the
        dataflow block stands for itself; constants are ``tvm.ir.GenericConst``.
    users : callable
        The values that read a bound value, such as ``root``, directly. A search knows them; TVM's
        own ``FuseOpsByPattern`` does not, and there are none then.

    Examples
    --------
    >>> x = relax.Var("x", relax.TensorType((8, 8), "float32"))
    >>> match = Match(relax.op.nn.relu(x), {"input": x})
    >>> match.root.op.name, match.annotated["input"].name
    ('relax.nn.relu', 'x')
    """

    root: relax.Expr
    annotated: Mapping[str, relax.Expr]
    users: Callable[[relax.Expr], Sequence[relax.Expr]] = _no_users


Predicate = Callable[[Match], Verdict]


def always(_: Match) -> Verdict:
    """Predicate that accepts every match.

    Examples
    --------
    >>> x = relax.Var("x", relax.TensorType((8, 8), "float32"))
    >>> bool(always(Match(x, {})))
    True
    """
    return Verdict.yes()


@dataclass(frozen=True)
class PatternTriple:
    """(name, Relax dataflow pattern, predicate), as in TVM's pattern tables.

    ``name`` is ``<backend>.<what>``; ``annotations`` names sub-patterns for the predicate. In a
    backend's list a later triple has a higher priority, as in ``relax.backend.register_patterns``.

    Examples
    --------
    >>> from tvm.relax.dpl import is_op, wildcard
    >>> def large(match):
    ...     size = match.root.ty.shape[0]
    ...     return Verdict.yes() if size >= 1024 else Verdict.no(f"{size} rows are too few")
    >>> PatternTriple("mine.relu", is_op("relax.nn.relu")(wildcard()), large).name
    'mine.relu'
    """

    name: str
    pattern: DFPattern
    predicate: Predicate = always
    annotations: Mapping[str, DFPattern] = field(default_factory=dict)
