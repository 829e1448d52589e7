"""Patterns of single operators, for libraries that join whole regions by themselves."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

import tvm
from tvm import relax
from tvm.relax.dpl import is_op, is_tuple_get_item, wildcard

from collage.backends.contract import Match, PatternTriple, Predicate, Verdict
from collage.backends.relax.patterns.predicates import all_of
from collage.backends.relax.static_shape import tensor_shape


@dataclass(frozen=True)
class OperatorPatterns:
    """Makes triples of one operator each, named after it: ``fast.conv2d`` for ``nn.conv2d``.

    Attributes
    ----------
    backend : str
        What the names begin with.
    library : str
        What it is called in refusals.
    known : collection of str
        The dtypes that the library has at all.
    max_rank : int
        How many dimensions a tensor may have.

    Examples
    --------
    >>> fast = OperatorPatterns("fast", "libfast", ("float32",), 4)
    >>> triple = fast.triple("nn.prelu", 2, dtypes=("float32",))
    >>> triple.name, sorted(triple.annotations)
    ('fast.prelu', ['arg0', 'arg1', 'root'])
    """

    backend: str
    library: str
    known: Collection[str]
    max_rank: int

    def triple(
        self,
        operator: str,
        operands: int,
        *predicates: Predicate,
        dtypes: Sequence[str],
        optional: bool = False,
    ) -> PatternTriple:
        """A call of one operator, named ``root``; its operands are ``arg0``, ``arg1``, ….

        Parameters
        ----------
        operator : str
            Without ``relax.``.
        operands : int
            Arguments it has.
        *predicates : Predicate
            Asked one after the other once the tensors are known to be static and of the dtypes.
        dtypes : sequence of str
            What its tensors may be.
        optional : bool
            It may have more arguments than that.

        Returns
        -------
        PatternTriple
            Named by the operator, with this backend's prefix.
        """
        args = [wildcard() for _ in range(operands)]
        call = is_op(f"relax.{operator}")(*args, varg_default_wildcard=optional)
        named = {"root": call, **{f"arg{i}": arg for i, arg in enumerate(args)}}
        check = all_of(self.static_tensors(dtypes), *predicates)
        return PatternTriple(self._name(operator), call, check, named)

    def batch_norm(self, *predicates: Predicate, dtypes: Sequence[str]) -> PatternTriple:
        """The normalized tensor of a ``nn.batch_norm``, whose call is named ``root``.

        Parameters
        ----------
        *predicates, dtypes
            As :meth:`triple` takes them.

        Returns
        -------
        PatternTriple
            Its pattern is the first field of the call's tuple.
        """
        args = [wildcard() for _ in range(5)]
        call = is_op("relax.nn.batch_norm")(*args)
        named = {"root": call, **{f"arg{i}": arg for i, arg in enumerate(args)}}
        check = all_of(self.static_tensors(dtypes), *predicates)
        return PatternTriple(self._name("nn.batch_norm"), is_tuple_get_item(call, 0), check, named)

    def _name(self, operator: str) -> str:
        return f"{self.backend}.{operator.split('.')[-1]}"

    def static_tensors(self, dtypes: Sequence[str]) -> Predicate:
        """Every tensor has a static shape that the library can hold, and one of the dtypes."""

        def check(match: Match) -> Verdict:
            for name, ty in _tensor_types(match):
                dtype = str(ty.dtype)
                if dtype not in self.known:
                    return Verdict.no(
                        f"{name} has dtype {dtype}, which {self.library} does not have"
                    )
                if dtype not in dtypes:
                    return Verdict.no(f"{name} has dtype {dtype}; supported: {', '.join(dtypes)}")
                shape = tensor_shape(ty)
                if shape is None:
                    return Verdict.no(f"{name} has no static shape: {ty}")
                if 0 in shape:
                    return Verdict.no(f"{name} is empty: shape {shape}")
                if len(shape) > self.max_rank:
                    return Verdict.no(
                        f"{name} has {len(shape)} dimensions, more than {self.max_rank}"
                    )
            return Verdict.yes()

        return check


def _tensor_types(match: Match) -> Iterator[tuple[str, relax.TensorType]]:
    for name, expr in {"result": match.root, **match.annotated}.items():
        if isinstance(expr.ty, relax.TensorType):
            yield name, expr.ty
        elif isinstance(expr.ty, relax.TupleType):
            for place, field in enumerate(expr.ty.fields):
                if isinstance(field, relax.TensorType):
                    yield f"{name}[{place}]", field


def operator_names(values: Sequence[relax.Expr]) -> list[str]:
    """Names of the Relax operators among some bindings' values, without ``relax.``."""
    return [
        str(value.op.name).removeprefix("relax.")
        for value in values
        if isinstance(value, relax.Call) and isinstance(value.op, tvm.ir.Op)
    ]
