"""What every backend must keep that lowers its partitions to tensor programs."""

from __future__ import annotations

import pytest
from tvm import tirx

from collage.backends.compile import external_functions
from collage.backends.contract import BackendTarget, BuildContext, TensorBackend
from collage.testing.backend_cases import PatternCase, partition
from collage.testing.backend_contract import BackendContract


class TensorContract(BackendContract):
    """The suite of a :class:`~collage.backends.contract.TensorBackend` that runs on a CPU.

    Derive a test class, name the backend and override fixtures as for :class:`BackendContract`.

    Examples
    --------
    >>> class TestMyBackend(TensorContract):
    ...     backend_name = "tiles"  # As examples/tensor_backend registers it.
    >>> issubclass(TestMyBackend, BackendContract)
    True
    """

    def test_its_own_schedule_is_what_is_compiled(
        self,
        backend: TensorBackend,
        target: BackendTarget,
        context: BuildContext,
        cases: list[PatternCase],
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        functions = external_functions(partition(backend, target, cases), backend)
        scheduled: dict[str, tirx.PrimFunc] = {}
        schedule, generate = type(backend).schedule, type(backend).generate

        def scheduling(program, asked, where):  # type: ignore[no-untyped-def]
            assert BackendTarget.current() == asked == target
            assert isinstance(program, tirx.PrimFunc)
            done = schedule(backend, program, asked, where)
            scheduled[str(functions[len(scheduled)].attrs["global_symbol"])] = done
            return done

        def generating(programs, asked, where):  # type: ignore[no-untyped-def]
            assert {str(p.attrs["global_symbol"]) for p in programs.functions.values()} == set(
                scheduled
            )
            return generate(backend, programs, asked, where)

        with monkeypatch.context() as patch, target.scope:
            patch.setattr(backend, "schedule", scheduling)
            patch.setattr(backend, "generate", generating)
            backend.codegen(functions, target, context)
        assert len(scheduled) == len(cases)
        for function in functions:
            program = scheduled[str(function.attrs["global_symbol"])]
            outputs = 1 if not hasattr(function.ret_ty, "fields") else len(function.ret_ty.fields)
            assert len(program.params) == len(function.params) + outputs
