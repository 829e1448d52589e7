"""Suites that any backend, search, runner, engine or log must pass, for tests of one's own.

Derive a test class from a contract and give it what its docstring asks for; pytest runs the rest.

- :class:`BackendContract`: patterns, options and generated code of an external backend, with
  :class:`PatternCase` and :class:`Refusal` for the graphs it takes and refuses.
- :class:`TensorContract`: the same of one that lowers its partitions to tensor programs.
- :class:`AheadOfTimeContract`: of one whose code this machine cannot run.
- :class:`SearchContract`: a strategy that covers a graph with candidates.
- :class:`RunnerContract`: whatever times candidates, and what it makes of bad ones.
- :class:`EngineContract`: workers that build and time, wherever they are.
- :class:`DatabaseContract`: a log of measurements, shared, copied and read only.

Needs pytest: the extra ``testing``.
"""

import pytest

# Before they are imported: an assertion that fails in a suite shows its values, as in a test.
pytest.register_assert_rewrite(
    "collage.testing.ahead_of_time_contract",
    "collage.testing.backend_contract",
    "collage.testing.backend_statements",
    "collage.testing.database_contract",
    "collage.testing.engine_contract",
    "collage.testing.fixtures.engine_fixtures",
    "collage.testing.runner_contract",
    "collage.testing.search_contract",
    "collage.testing.tensor_contract",
)

from collage.testing.ahead_of_time_contract import AheadOfTimeContract  # noqa: E402
from collage.testing.backend_cases import PatternCase, Refusal, verdicts  # noqa: E402
from collage.testing.backend_contract import BackendContract  # noqa: E402
from collage.testing.database_contract import DatabaseContract  # noqa: E402
from collage.testing.engine_contract import EngineContract  # noqa: E402
from collage.testing.graphs import constant, graph  # noqa: E402
from collage.testing.runner_contract import RunnerContract  # noqa: E402
from collage.testing.search_contract import SearchContract  # noqa: E402
from collage.testing.tensor_contract import TensorContract  # noqa: E402

__all__ = [
    "AheadOfTimeContract",
    "BackendContract",
    "DatabaseContract",
    "EngineContract",
    "PatternCase",
    "Refusal",
    "RunnerContract",
    "SearchContract",
    "TensorContract",
    "constant",
    "graph",
    "verdicts",
]
