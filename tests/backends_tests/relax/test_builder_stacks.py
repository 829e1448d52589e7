"""Relax functions written by several threads at once."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

from tvm import relax

import collage.backends.relax  # noqa: F401  (what is tested happens at its import)


def test_two_threads_write_functions_at_once() -> None:
    """Each opens its function while the other's is open, and closes it while that is open, too."""
    together = threading.Barrier(2, timeout=60)

    def written(name: str) -> list[str]:
        builder, x = relax.BlockBuilder(), relax.Var("x", relax.TensorType((2,), "float32"))
        with builder.function(name, [x]):
            together.wait()
            assert relax.BlockBuilder.current() is builder
            result = builder.emit(relax.op.exp(x))
            together.wait()
            builder.emit_func_output(result)
        return [found.name_hint for found in builder.get().get_global_vars()]

    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(written, ["one", "two"])) == [["one"], ["two"]]
    assert relax.BlockBuilder.current() is None
