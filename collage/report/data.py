"""What a search found out, as plain values: the report's data, without its looks.

Everything here is text, numbers, lists and dictionaries, so a report travels as one JSON file
inside a bundle and is read without TVM.
"""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass, field

import msgspec

from collage.backends.contract.errors import BundleError
from collage.report.codec import decode
from collage.report.graph_rows import Alternative, NodeInfo, PartitionInfo, RejectionInfo
from collage.report.memory import MemoryUse
from collage.report.workers import BuilderUse, WorkerUse

SCHEMA_VERSION = 1

EQUAL = 0.02
"""Costs of candidates within this share of each other are a tie: independent measurements of one
candidate differ by as much."""


@dataclass(frozen=True)
class EndToEnd:
    """The whole model's time under one partitioning, or in another engine.

    Attributes
    ----------
    name : str
        For example ``search``, ``onednn only``, ``onednn greedy``, ``onnxruntime``.
    median_sec, spread_sec : float
        Over ``n`` samples, interleaved with the others; the median is None when it did not run.
    chosen : bool
        Whether this is what the bundle holds.
    note : str
        Why it did not run, or what else to know.
    kind : str
        ``search``, ``single`` (one backend, TVM for the rest), ``greedy`` or ``peer`` (another
        engine); by default what stands before a colon in the name, as in ``single:onednn``.
    outcome : str
        How it stands against the chosen one, a :class:`collage.cost.contest.Outcome`; empty where
        they did not run in the same rounds.
    ratio, ratio_low, ratio_high : float or None
        Its time over the chosen one's, median over the rounds that both played, and the interval
        of that; None where the rounds were too few.
    rounds, disturbed, discarded : int
        Rounds that it played and that count; rounds in which the machine was disturbed; those of
        them that were measured again and do not count.
    memory : MemoryUse or None
        What it takes, as far as that can be known beforehand.
    largest_error : float or None
        Difference to the reference's outputs, relative to the largest value of each; None when it
        did not run.
    sum_sec : float or None
        What its partitions take together, each alone; None where that is not known.
    sum_is_guessed : bool
        Whether some of them were not measured alone.

    Examples
    --------
    >>> EndToEnd("single:onednn", 2e-3, 1e-5, n=20).kind
    'single'
    """

    name: str
    median_sec: float | None
    spread_sec: float
    n: int
    chosen: bool = False
    note: str = ""
    kind: str = ""
    outcome: str = ""
    ratio: float | None = None
    ratio_low: float | None = None
    ratio_high: float | None = None
    rounds: int = 0
    disturbed: int = 0
    discarded: int = 0
    memory: MemoryUse | None = None
    largest_error: float | None = None
    sum_sec: float | None = None
    sum_is_guessed: bool = False

    def __post_init__(self) -> None:
        if not self.kind:
            object.__setattr__(self, "kind", self.name.partition(":")[0])


@dataclass(frozen=True)
class SearchStats:
    """How much work the search was. Times in seconds; building and running add up over workers.

    Waiting: until other processes let the device go. Holding: while they had to wait for this one.

    Attributes
    ----------
    distinct_workloads, unmeasured : int
        Workloads that mattered so far, and those of them that there was no time for.
    budget_sec : float or None
        The time that was asked for.
    interrupted : bool
        Whether the user wanted the answer before the search was over.
    complete : bool
        Whether the search was: its answer is the cheapest of all by the sum of its parts, but for
        ties.
    contenders, contenders_timed : int
        Whole models that might have been timed against each other, and that were.
    evaluated : int
        Candidates whose costs are known.
    sum_sec, bound_sec : float or None
        What the parts of the search's answer take, guesses included, and the least that those of
        any partitioning may take.
    likely_sec : float or None
        The least that those of any are likely to take, by what like ones took.
    assumed_flops_per_sec : float or None
        The rate, a quarter above the best that was measured, which no candidate that was not is
        held to exceed.

    Examples
    --------
    >>> SearchStats(candidates=40, distinct_workloads=12, from_log=12).measured
    0
    """

    candidates: int = 0
    distinct_workloads: int = 0
    measured: int = 0
    from_log: int = 0
    invalid: int = 0
    wall_sec: float = 0.0
    building_sec: float = 0.0
    running_sec: float = 0.0
    waiting_sec: float = 0.0
    holding_sec: float = 0.0
    budget_sec: float | None = None
    interrupted: bool = False
    complete: bool = True
    unmeasured: int = 0
    contenders: int = 0
    contenders_timed: int = 0
    evaluated: int = 0
    sum_sec: float | None = None
    bound_sec: float | None = None
    likely_sec: float | None = None
    assumed_flops_per_sec: float | None = None


@dataclass(frozen=True)
class Report:
    """Everything there is to say about one optimization.

    Attributes
    ----------
    model : str
        What was optimized: a file name or the module's own name.
    created : str
        ISO 8601, with the time zone.
    device : dict
        The machine: ``name``, ``cores``, ``threads`` ...
    versions : dict
        Of the compiler and the libraries.
    targets : list of str
        ``BackendTarget.key()`` of every target given.
    outputs_max_rel_diff : float or None
        Largest difference to the reference's outputs, relative to the largest value of each.
    outputs_rounding_rel_diff : float or None
        What rounding each operator's result to its element type makes of them, likewise.
    max_error : float or None
        Of the former what was allowed, where libraries might compute with fewer digits.
    workers : list of WorkerUse
        Who measured.
    builders : BuilderUse
        Who built what they measured.
    remarks : list of str
        What the inputs were that outputs were compared on, where that was not plain noise, and what
        such a comparison says.
    function : str
        Which function of the model this is about.
    others : list of Report
        Those of the model's other functions.

    Examples
    --------
    >>> relu = NodeInfo(0, "lv", "nn.relu", "1x8", "float32", inputs=[])
    >>> part = PartitionInfo(0, "tvm", [0], [], "fuse_ops", 1e-6, 1e-8, "2d71")
    >>> report = Report("net", "", {}, {}, ['{"backend": "tvm"}'], [relu], [part])
    >>> Report.from_json(report.to_json()) == report
    True
    >>> report.backend_labels()
    ['tvm']
    """

    model: str
    created: str
    device: dict[str, str]
    versions: dict[str, str]
    targets: list[str]
    nodes: list[NodeInfo]
    partitions: list[PartitionInfo]
    alternatives: list[Alternative] = field(default_factory=list)
    rejections: list[RejectionInfo] = field(default_factory=list)
    end_to_end: list[EndToEnd] = field(default_factory=list)
    search: SearchStats = field(default_factory=SearchStats)
    outputs_max_rel_diff: float | None = None
    outputs_rounding_rel_diff: float | None = None
    remarks: list[str] = field(default_factory=list)
    workers: list[WorkerUse] = field(default_factory=list)
    builders: BuilderUse = field(default_factory=BuilderUse)
    function: str = "main"
    others: list[Report] = field(default_factory=list)
    max_error: float | None = None

    def to_json(self) -> str:
        """This report as a JSON document, one key per field and ``schema_version``."""
        # Infinity and not-a-number, which JSON cannot write, become null.
        text = msgspec.json.encode({"schema_version": SCHEMA_VERSION, **dataclasses.asdict(self)})
        return msgspec.json.format(text, indent=1).decode() + "\n"

    @classmethod
    def from_json(cls, text: str) -> Report:
        """The inverse of :meth:`to_json`.

        Raises
        ------
        BundleError
            When the text is no JSON, of another schema version, or lacks a field.
        """
        try:
            value = json.loads(text)
        except (ValueError, RecursionError) as err:
            raise BundleError(f"the report is no JSON document: {err}", value=text[:80]) from err
        version = value.pop("schema_version", None) if isinstance(value, dict) else None
        if version != SCHEMA_VERSION:
            raise BundleError(
                f"the report has schema version {version!r}; this program reads {SCHEMA_VERSION}",
                value=version,
            )
        try:
            return decode(cls, value)
        except msgspec.ValidationError as err:
            raise BundleError(f"the report is damaged: {err}", value=None) from err

    def backend_labels(self) -> list[str]:
        """Every backend this report speaks of, in order of first mention (targets first)."""
        labels = [str(json.loads(key).get("backend", key)) for key in self.targets]
        labels += [p.backend for p in self.partitions if not p.inline]
        labels += [a.backend for a in self.alternatives]
        labels += [r.backend for r in self.rejections]
        return list(dict.fromkeys(labels))
