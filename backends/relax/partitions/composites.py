"""Partition functions that hold one composite: what it is, and what its operands are outside.

Backends of single operators read them so. Those whose regions hold many composites walk through
them, see :mod:`collage.backends.relax.partitions.walk`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import tvm
from tvm import relax

from collage.backends.contract.errors import CodegenError, UnsupportedProblemError
from collage.backends.relax.calls.layouts import permutation


@contextmanager
def compiling(backend: str, what: str) -> Iterator[None]:
    """Inside of it, that a library cannot run a problem is the code generator's error.

    Parameters
    ----------
    backend : str
        Whose code generator it is.
    what : str
        The partition's symbol, or its composite's name.

    Yields
    ------
    None
        Nothing; an error is translated on its way out.

    Raises
    ------
    CodegenError
        In place of ``UnsupportedProblemError``, with its reason.

    Examples
    --------
    >>> with compiling("mine", "fused_relu"):
    ...     raise UnsupportedProblemError("takes 8 rows at the most")
    Traceback (most recent call last):
        ...
    collage.backends.contract.errors.CodegenError: mine cannot compile 'fused_relu': takes ...
    """
    try:
        yield
    except UnsupportedProblemError as err:
        raise CodegenError(f"{backend} cannot compile '{what}': {err}", value=what) from err


def bindings_of(function: relax.Function) -> dict[relax.Var, relax.Expr]:
    """What every variable of a function's body is bound to, in order."""
    return {b.var: b.value for block in function.body.blocks for b in block.bindings}


def resolve(expr: relax.Expr, bindings: Mapping[relax.Var, relax.Expr]) -> relax.Expr:
    """An expression seen through variables, as far as these are bound.

    Parameters
    ----------
    expr : relax.Expr
        A variable is followed to what it is bound to.
    bindings : mapping of relax.Var to relax.Expr
        By variable, what it is bound to.

    Returns
    -------
    relax.Expr
        The last variable, where that is bound to nothing.
    """
    while isinstance(expr, relax.Var) and expr in bindings:
        expr = bindings[expr]
    return expr


@dataclass(frozen=True)
class Composite:
    """A ``Composite`` function: the operators that a pattern matched.

    Attributes
    ----------
    function : relax.Function
        The function itself.
    bindings : mapping
        What its variables are bound to, in order.

    Examples
    --------
    >>> builder, x = relax.BlockBuilder(), relax.Var("x", relax.TensorType((8, 8), "float32"))
    >>> with builder.function("relu", [x], attrs={"Composite": "mine.relu"}, private=True):
    ...     out = builder.emit_func_output(builder.emit(relax.op.nn.relu(x)))
    >>> composite = Composite.of(builder.get()["relu"])
    >>> composite.name, composite.root.op.name
    ('mine.relu', 'relax.nn.relu')
    """

    function: relax.Function
    bindings: Mapping[relax.Var, relax.Expr]

    @classmethod
    def of(cls, function: relax.Function) -> Composite:
        """Take a composite function apart."""
        return cls(function, bindings_of(function))

    @property
    def name(self) -> str:
        """The name of the pattern triple that it comes from."""
        return str(self.function.attrs["Composite"])

    @property
    def root(self) -> relax.Expr:
        """Its result, seen through variables."""
        return self.resolve(self.function.body.body)

    def resolve(self, expr: relax.Expr) -> relax.Expr:
        """An expression seen through its variables, down to its parameters."""
        return resolve(expr, self.bindings)

    def unpermuted(self, expr: relax.Expr) -> relax.Expr:
        """An expression seen through its variables and through a ``permute_dims``."""
        value = self.resolve(expr)
        return value if permutation(value) is None else self.resolve(value.args[0])

    def activated(self, expr: relax.Expr) -> relax.Expr:
        """What an activation is applied to.

        ``x * sigmoid(x)`` and ``x * clip(...)`` are activations of ``x``.

        Raises
        ------
        CodegenError
            When the expression is no activation.
        """
        call = self.resolve(expr)
        if isinstance(call, relax.Call) and call.op.name != "relax.multiply":
            return self.resolve(call.args[0])
        left, right = (self.resolve(arg) for arg in getattr(call, "args", (call, call)))
        for value, gate in ((left, right), (right, left)):
            if isinstance(gate, relax.Call) and gate.op.name in ("relax.sigmoid", "relax.clip"):
                return value
        raise CodegenError(f"'{self.name}': no activation where expected: {call}", value=self.name)

    def take_apart(
        self, core: str, stages: Iterable[str]
    ) -> tuple[relax.Call, dict[str, relax.Expr]]:
        """Walk from the result back to the operator that everything else follows.

        Parameters
        ----------
        core : str
            That operator, for example ``relax.matmul``.
        stages : iterable of str
            What follows it, the last one first: ``activation``, ``permuted``, or the name of a
            value that is joined by an addition or multiplication.

        Returns
        -------
        call : relax.Call
            Of the core.
        joined : dict of str to relax.Expr
            The joined values by name, resolved.

        Raises
        ------
        CodegenError
            When the composite is made otherwise.
        """
        at, joined = self.root, {}
        for stage in stages:
            if stage == "activation":
                at = self.activated(at)
            elif stage == "permuted":
                at = self.unpermuted(at)
            elif isinstance(at, relax.Call) and len(at.args) == 2:
                at, joined[stage] = self.computed_and_other(at)
        if not isinstance(at, relax.Call) or at.op.name != core:
            raise CodegenError(f"'{self.name}': no {core} where expected: {at}", value=self.name)
        return at, joined

    def computed_and_other(self, call: relax.Call) -> tuple[relax.Expr, relax.Expr]:
        """Of a call's two operands the one that is computed here, and the other; both resolved.

        Where both are, the left one counts as computed.
        """
        left, right = (self.resolve(arg) for arg in call.args)
        return (left, right) if isinstance(left, relax.Call) else (right, left)


@dataclass(frozen=True)
class CompositeCall:
    """A ``Codegen`` function that calls one composite.

    Attributes
    ----------
    partition : relax.Function
        The function itself.
    composite : Composite
        What it calls.

    Examples
    --------
    >>> from tvm.relax.dpl import is_op, wildcard
    >>> from collage.testing import graph
    >>> relu = ("mine.relu", is_op("relax.nn.relu")(wildcard()))
    >>> partitions = relax.transform.FuseOpsByPattern([relu], annotate_codegen=True)
    >>> mod = partitions(graph([(8, 8)], lambda _, x: relax.op.nn.relu(x)))
    >>> call = CompositeCall.of(mod["fused_relax_nn_relu_mine"], "mine")
    >>> call.composite.name, call.position(call.composite.root.args[0])
    ('mine.relu', 0)
    """

    partition: relax.Function
    composite: Composite
    _bindings: Mapping[relax.Var, relax.Expr]
    _passed: Mapping[relax.Var, relax.Expr]

    @classmethod
    def of(cls, partition: relax.Function, backend: str) -> CompositeCall:
        """Take a partition function of a backend apart.

        Parameters
        ----------
        partition : relax.Function
            A ``Codegen`` function.
        backend : str
            The name of the one that it is of; composites' names begin with it.

        Returns
        -------
        CompositeCall
            Its one composite, with what the partition passes for each parameter.

        Raises
        ------
        CodegenError
            When it is not the call of one composite.
        """
        symbol = str(partition.attrs["global_symbol"])
        bindings = bindings_of(partition)
        composites = [value for value in bindings.values() if isinstance(value, relax.Function)]
        call = resolve(partition.body.body, bindings)
        if len(composites) != 1 or not isinstance(call, relax.Call):
            raise CodegenError(
                f"'{symbol}' holds {len(composites)} composites; {backend} takes one", value=symbol
            )
        passed = dict(zip(composites[0].params, call.args, strict=True))
        return cls(partition, Composite.of(composites[0]), bindings, passed)

    @property
    def symbol(self) -> str:
        """The partition's global symbol."""
        return str(self.partition.attrs["global_symbol"])

    def outside(self, expr: relax.Expr) -> relax.Expr:
        """What an expression of the composite is in the partition: a parameter, a constant, …."""
        inner = self.composite.resolve(expr)
        return resolve(self._passed.get(inner, inner), self._bindings)

    def position(self, expr: relax.Expr) -> int:
        """Which of the partition's parameters an expression of the composite stands for.

        Raises
        ------
        CodegenError
            When it stands for none.
        """
        origin = self.outside(expr)
        for index, parameter in enumerate(self.partition.params):
            if parameter.same_as(origin):
                return index
        what = "a constant" if isinstance(origin, tvm.ir.GenericConst) else "computed inside"
        raise CodegenError(
            f"'{self.symbol}': an operand of '{self.composite.name}' is {what}, not an argument",
            value=self.symbol,
        )
