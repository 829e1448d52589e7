"""Backends that lower their partitions to tensor programs, with passes and schedules of their own.

Such a backend is an external one: it has patterns, a name and options, and is measured by itself.
What it need not have is a library. Each of its partitions becomes one tensor program, which it may
schedule, tensorize with its own intrinsics, rewrite by its own passes, and have compiled by TVM or
generate code from itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import tvm
from tvm import relax, tirx

from collage.backends.contract.backend import ExternalBackend
from collage.backends.contract.context import BuildContext
from collage.backends.contract.errors import CodegenError, last_line
from collage.backends.contract.llvm import without_interleaving
from collage.backends.contract.target import BackendTarget


class TensorBackend(ExternalBackend):
    """A backend whose partitions become tensor programs (TIR).

    What it has to define besides ``name``, ``probe`` and ``patterns`` is nothing; what it may
    override are the steps from a partition to code, each of which runs with
    :attr:`~collage.backends.contract.BackendTarget.scope` as TVM's current target.

    Examples
    --------
    >>> from tvm.relax.dpl import is_op, wildcard
    >>> from collage.backends.contract import Availability, PatternTriple
    >>> class Loops(TensorBackend):
    ...     name = "loops"
    ...     def probe(self):
    ...         return Availability(True, {"loops": "1.0"})
    ...     def patterns(self, target):
    ...         return [PatternTriple("loops.silu", is_op("relax.nn.silu")(wildcard()))]
    ...     def schedule(self, program, target, context):
    ...         schedule = tvm.s_tir.Schedule(program)
    ...         for block in schedule.get_child_blocks(schedule.get_sblock("root")):
    ...             schedule.parallel(schedule.get_loops(block)[0])
    ...         return schedule.mod["main"]
    >>> Loops().constants_as_arguments
    True
    """

    constants_as_arguments: ClassVar[bool] = True

    def legalize_passes(self, target: BackendTarget) -> Sequence[tvm.transform.Pass]:
        """From operators to calls of tensor programs; by default TVM's own for each operator."""
        return [relax.transform.LegalizeOps()]

    def schedule(
        self, program: tirx.PrimFunc, target: BackendTarget, context: BuildContext
    ) -> tirx.PrimFunc:
        """The program of one partition as it is to run; by default as it is.

        Parameters
        ----------
        program : tirx.PrimFunc
            Takes the partition's inputs, its constants of more than one element, its outputs.
        target : BackendTarget
            With this backend's options.
        context : BuildContext
            Has the number of threads.

        Returns
        -------
        tirx.PrimFunc
            With the same parameters and the same global symbol.
        """
        return program

    def program_passes(self, target: BackendTarget) -> Sequence[tvm.transform.Pass]:
        """Passes over the module of all scheduled programs; by default none."""
        return ()

    def generate(
        self, programs: tvm.IRModule, target: BackendTarget, context: BuildContext
    ) -> list[tvm.runtime.Module]:
        """Code of all programs, each under its global symbol; by default TVM's for the device.

        Parameters
        ----------
        programs : tvm.IRModule
            Scheduled, and rewritten by :meth:`program_passes`.
        target : BackendTarget
            With this backend's options.
        context : BuildContext
            Where to build.

        Returns
        -------
        list of tvm.runtime.Module
            One or more, which the final link takes.
        """
        return [tvm.tirx.build(programs, target=without_interleaving(target.device))]

    def codegen(
        self, functions: Sequence[relax.Function], target: BackendTarget, context: BuildContext
    ) -> list[tvm.runtime.Module]:
        """See :meth:`ExternalBackend.codegen`; each step's failure is a failed candidate.

        Raises
        ------
        CodegenError
            When a partition cannot be lowered, scheduled or compiled.
        """
        programs = {}
        try:
            for function in functions:
                symbol = str(function.attrs["global_symbol"])
                program = _tensor_program(function, self.legalize_passes(target))
                program = self.schedule(program, target, context)
                programs[symbol] = program.with_attr("global_symbol", symbol)
            passes = tvm.transform.Sequential(list(self.program_passes(target)))
            return self.generate(passes(tvm.IRModule(programs)), target, context)
        except (RuntimeError, ValueError, TypeError) as err:
            raise CodegenError(
                f"'{self.name}' cannot lower its partitions: {last_line(err)}",
                value=[str(function.attrs["global_symbol"]) for function in functions],
            ) from err


def _tensor_program(
    function: relax.Function, legalize_passes: Sequence[tvm.transform.Pass]
) -> tirx.PrimFunc:
    """One tensor program that computes a whole partition."""
    name = str(function.attrs["global_symbol"])
    alone = relax.Function(function.params, function.body, function.ret_ty, function.is_pure)
    passes = [
        relax.transform.Normalize(),
        relax.transform.LambdaLift(),
        relax.transform.InlinePrivateFunctions(),
        relax.transform.DeadCodeElimination(["main"]),
        # Relax fuses in dataflow blocks alone, and a partition's body is none yet.
        relax.transform.ConvertToDataflow(min_size=1),
        *legalize_passes,
    ]
    mod = tvm.IRModule({"main": alone.with_attr("global_symbol", "main")})
    mod = tvm.transform.Sequential(passes)(mod)
    _require_lowered(name, mod["main"])
    inner = mod["main"].without_attr("global_symbol").with_attr("Primitive", True)
    callee = relax.GlobalVar(name)
    relax.expr._update_type(callee, relax.FuncType([p.ty for p in inner.params], inner.ret_ty))
    params = [relax.Var(f"x{index}", param.ty) for index, param in enumerate(inner.params)]
    result = relax.Var("result", inner.ret_ty)
    block = relax.BindingBlock([relax.VarBinding(result, relax.Call(callee, params))])
    main = relax.Function(params, relax.SeqExpr([block], result), inner.ret_ty)
    kernels = {gv: f for gv, f in mod.functions.items() if isinstance(f, tirx.PrimFunc)}
    main_var = relax.GlobalVar("main")
    whole = {**kernels, callee: inner, main_var: main.with_attr("global_symbol", "main")}
    fused = relax.transform.FuseTIR()(relax.transform.Normalize()(tvm.IRModule(whole)))
    return fused[name]


def _require_lowered(name: str, function: relax.Function) -> None:
    """Refuse what legalization left as an operator."""
    for block in function.body.blocks:
        for binding in block.bindings:
            value = binding.value
            if isinstance(value, relax.Call) and str(value.op.name) != "relax.call_tir":
                raise CodegenError(
                    f"'{name}': no tensor program computes {value.op.name}", value=str(value.op)
                )
