"""The log's schema: one measurement, what it is keyed by, and its line of JSON.

Every field is named with its unit. A record answers a question only when its whole key agrees;
the key therefore holds everything that can change a time.
"""

from __future__ import annotations

import dataclasses
import json
import math
from dataclasses import dataclass, field
from typing import Any

from collage.backends.storage.tuning_record import (
    BLOB_KIND,
    KIND,
    BlobReference,
    TuningRecord,
    read_blob_reference,
)
from collage.cost.base import Clocks, Cost
from collage.cost.call_times import CallTime
from collage.cost.contest import Rounds
from collage.cost.database.fields import FieldReader, calls_of, clocks_of, cost_of, rounds_of

SCHEMA_VERSION = 1
"""Raised whenever a field changes its meaning; records of other versions are never hits."""

PARTITION = "partition"
"""Kind of a record: one candidate's workload, alone."""
END_TO_END = "end_to_end"
"""Kind of a record: a whole model."""
TRANSITION = "transition"
"""Kind of a record: what the virtual machine adds."""
TOGETHER = "together"
"""Kind of a record: one candidate's workload, in the same rounds as others."""


@dataclass(frozen=True)
class RecordKey:
    """Everything that a measurement depends on.

    Attributes
    ----------
    kind : str
        ``partition``, ``together``, ``end_to_end`` or ``transition``.
    workload : str
        The workload's key; for whole models a digest of the partitioned module and its weights.
    tensors : str
        Shapes and dtypes, inputs and outputs.
    target : str
        The backend targets with all their attributes, as canonical JSON.
    versions : tuple of (str, str)
        Versions of the backends, their libraries and their code generators.
    compiler : str
        The C++ compiler.
    tvm : str
        TVM's version and its FFI's.
    device : str
        The device's name, cores and instruction set.
    driver : str
        ``none`` on a CPU.
    num_threads : int
        Threads that kernels run with.
    config : str
        The measuring configuration, as canonical JSON.
    denormals : str
        ``flushed`` or ``ieee`` on a CPU; empty on other devices, and in logs of earlier releases.
    schema : int
        See ``SCHEMA_VERSION``.

    Examples
    --------
    >>> key = RecordKey(
    ...     kind=PARTITION,
    ...     workload="5f1c",
    ...     tensors="8x8:float32 -> 8x8:float32",
    ...     target='{"backend": "tvm"}',
    ...     versions=(("apache-tvm", "0.22"),),
    ...     compiler="g++ 12.2",
    ...     tvm="0.22, ffi 0.1",
    ...     device="Some CPU, 4 cores, isa 0123",
    ...     driver="none",
    ...     num_threads=4,
    ...     config='{"repeat": 30}',
    ... )
    >>> key == dataclasses.replace(key, num_threads=8)
    False
    """

    kind: str
    workload: str
    tensors: str
    target: str
    versions: tuple[tuple[str, str], ...]
    compiler: str
    tvm: str
    device: str
    driver: str
    num_threads: int
    config: str
    denormals: str = ""
    schema: int = SCHEMA_VERSION


@dataclass(frozen=True)
class Record:
    """One measurement.

    Attributes
    ----------
    key : RecordKey
        What was measured, where and how.
    cost : Cost
        What came out: valid, or invalid with its reason.
    description : str
        The workload in words.
    backend : str
        Who ran it.
    largest_error : float
        Relative difference to the reference.
    first_call_sec, build_sec, run_sec : float
        The first call; building; checking and timing. For information.
    measured_at : str
        UTC time, ISO 8601.
    clocks : Clocks or None
        Those of a CUDA device right after timing, where they can be read. For information.
    rounds : Rounds or None
        Of a whole model: its part in the contest with others, from which the choice among them
        follows. Logs of earlier releases have none. Of a candidate that was timed together with
        others: what was measured, of which its samples are made.
    calls : tuple of CallTime
        Of a whole model: the calls inside it, in their order. Logs of earlier releases have none,
        and those of devices where they cannot be seen.

    Examples
    --------
    >>> facts = ("5f1c", "8x8:float32", '{"backend": "tvm"}', (), "g++ 12.2", "0.22", "Some CPU")
    >>> key = RecordKey(PARTITION, *facts, driver="none", num_threads=4, config="{}")
    >>> record = Record(key, Cost.of_samples([2e-6, 1e-6, 3e-6]), "relu 8x8", "tvm")
    >>> Record.from_json(record.to_json()) == record
    True
    """

    key: RecordKey
    cost: Cost
    description: str = ""
    backend: str = ""
    largest_error: float = 0.0
    first_call_sec: float = 0.0
    build_sec: float = 0.0
    run_sec: float = 0.0
    measured_at: str = field(default="", compare=False)
    clocks: Clocks | None = None
    rounds: Rounds | None = None
    calls: tuple[CallTime, ...] = ()

    def to_json(self) -> str:
        """One line of JSON, without its end."""
        key = dataclasses.asdict(self.key)
        # Shown as objects, so that a human can read them and pandas can take them apart.
        key["target"] = json.loads(self.key.target)
        key["config"] = json.loads(self.key.config)
        key["versions"] = dict(self.key.versions)
        valid = self.cost.is_valid
        low_sec, high_sec = self.cost.interval_sec or (None, None)
        value = {
            "schema": key.pop("schema"),
            "kind": key.pop("kind"),
            "backend": self.backend,
            "description": self.description,
            "status": self.cost.status.value,
            "median_sec": self.cost.median_sec if valid else None,
            "spread_sec": self.cost.spread_sec if valid else None,
            "median_low_sec": low_sec,
            "median_high_sec": high_sec,
            "n": len(self.cost.samples_sec),
            **({"others": self.cost.others} if self.cost.others else {}),
            "reason": self.cost.reason,
            **key,
            "largest_error": self.largest_error if math.isfinite(self.largest_error) else None,
            "first_call_sec": self.first_call_sec,
            "build_sec": self.build_sec,
            "run_sec": self.run_sec,
            "measured_at": self.measured_at,
            "sm_clock_mhz": self.clocks.sm_mhz if self.clocks else None,
            "memory_clock_mhz": self.clocks.memory_mhz if self.clocks else None,
            "samples_sec": list(self.cost.samples_sec),
            **({} if self.rounds is None else {"rounds": dataclasses.asdict(self.rounds)}),
            **({"calls": [dataclasses.asdict(call) for call in self.calls]} if self.calls else {}),
        }
        return json.dumps(value, allow_nan=False)

    @classmethod
    def from_json(cls, line: str) -> Record:
        """The inverse of :meth:`to_json`.

        Raises
        ------
        ValueError
            When the line is no JSON, no record, or of another schema; says which.
        """
        return cls.from_value(_parse(line))

    @classmethod
    def from_value(cls, value: dict[str, Any]) -> Record:
        """From a line's parsed JSON.

        Raises
        ------
        ValueError
            As :meth:`from_json` does.
        """
        if "schema" not in value or "workload" not in value:
            raise ValueError("is no measurement")
        if value["schema"] != SCHEMA_VERSION:
            raise ValueError(f"is of schema {value['schema']}, not {SCHEMA_VERSION}")
        reader = FieldReader(value)
        key = RecordKey(
            kind=reader.text("kind"),
            workload=reader.text("workload"),
            tensors=reader.text("tensors"),
            target=canonical_json(reader.get("target", dict, list)),
            versions=tuple(sorted(reader.texts("versions").items())),
            compiler=reader.text("compiler"),
            tvm=reader.text("tvm"),
            device=reader.text("device"),
            driver=reader.text("driver"),
            num_threads=reader.get("num_threads", int),
            config=canonical_json(reader.get("config", dict)),
            denormals=reader.text("denormals") if "denormals" in value else "",
        )
        return cls(
            key,
            cost_of(reader),
            reader.text("description"),
            reader.text("backend"),
            math.inf if value.get("largest_error") is None else reader.number("largest_error"),
            reader.number("first_call_sec"),
            reader.number("build_sec"),
            reader.number("run_sec"),
            reader.text("measured_at"),
            clocks_of(value),
            rounds_of(value),
            calls_of(value),
        )


def read_line(line: str) -> Record | TuningRecord | BlobReference:
    """What one line of a log holds: a measurement, what a backend found, or bytes of a finding.

    Raises
    ------
    ValueError
        When it is none of these; says why.
    """
    value = _parse(line)
    if value.get("kind") == KIND:
        return TuningRecord.from_value(value)
    if value.get("kind") == BLOB_KIND:
        return read_blob_reference(value)
    return Record.from_value(value)


def _parse(line: str) -> dict[str, Any]:
    try:
        value = json.loads(line)
    except json.JSONDecodeError as err:
        raise ValueError(f"is no JSON ({err.msg})") from err
    except RecursionError as err:
        raise ValueError("is nested too deeply") from err
    if not isinstance(value, dict):
        raise ValueError("is no measurement")
    return value


def canonical_json(value: object) -> str:
    """One text per value."""
    return json.dumps(value, sort_keys=True)
