"""A limit on memory: who is over it does not take part, and the search looks for what is within.

The search knows sums of seconds alone. So each candidate's bytes are given a price in seconds, and
the price is raised until the cheapest cover is within the limit: at a low price the one that is
hardly slower, at a high one the smallest there is. What room is left is then spent on parts of the
faster cover that came before it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from collage.backends.contract import TargetSet
from collage.backends.contract.errors import MemoryLimitError
from collage.candidate_costs import WorkloadCosts
from collage.cost.base import Cost, CostStatus
from collage.cost.deadline import Deadline
from collage.end_to_end import Contender, EndToEndComparison, Evaluation, memory_of
from collage.passes import extract
from collage.pipeline.costing.priced_costs import PricedCosts, cheapest_at_price
from collage.pipeline.covers import Covers
from collage.pipeline.evaluated import Evaluated
from collage.pipeline.imported import Imported
from collage.report import MemoryUse, size_text
from collage.search.candidates import Candidate
from collage.search.cover_exchanges import CoverExchange, exchanged, exchanges
from collage.search.partitioning import Partitioning
from collage.search.rules import PartitionRule

_PRICES = (0.1, 0.3, 1.0, 3.0, 10.0, 100.0, 10_000.0)
"""Of all bytes of the answer without a limit, in shares of its seconds."""


class MemoryLimit:
    """Says who is within the limit, and remembers who is not.

    Parameters
    ----------
    imported : Imported
        What is searched.
    targets : TargetSet
        What it may use.
    comparison : EndToEndComparison
        States what contenders take.
    limit_bytes : int or None
        None is no limit.

    Attributes
    ----------
    left_out : tuple of Evaluation
        Those of the last covers that were over the limit.
    """

    def __init__(
        self,
        imported: Imported,
        targets: TargetSet,
        comparison: EndToEndComparison,
        limit_bytes: int | None,
    ) -> None:
        self.left_out: tuple[Evaluation, ...] = ()
        self._imported, self._targets = imported, targets
        self._comparison = comparison
        self._limit = limit_bytes
        self._least: MemoryUse | None = None
        self._bytes: dict[Candidate, int] = {}

    @property
    def remarks(self) -> tuple[str, ...]:
        """What the report is to say."""
        if self._limit is None:
            return ()
        count = len(self.left_out)
        text = f"{count} contender{'s were' if count != 1 else ' was'} over it" if count else ""
        return (f"memory limit {size_text(self._limit)}{': ' * bool(text)}{text}",)

    def fits(self, contender: Contender) -> bool:
        """Whether one may take part."""
        if self._limit is None:
            return True
        use = self._comparison.stated(contender).memory
        if use is None:
            return False
        if self._least is None or use.total_bytes < self._least.total_bytes:
            self._least = use
        return use.total_bytes <= self._limit

    def keep(
        self,
        covers: Covers,
        costs: WorkloadCosts,
        repair: Callable[[Contender], Contender | None],
        rules: Sequence[PartitionRule],
        deadline: Deadline,
    ) -> Covers:
        """Covers within the limit; the search's answer is replaced where it is over it.

        Parameters
        ----------
        covers : Covers
            As the search without a limit has them.
        costs : WorkloadCosts
            What it asked.
        repair : callable
            Takes out what libraries refuse; None where nothing else may run that.
        rules : sequence of PartitionRule
            Last resorts of a search.
        deadline : Deadline
            When the answer has to be made of what is known.

        Returns
        -------
        Covers
            The same where all contenders keep to the limit.

        Raises
        ------
        MemoryLimitError
            When nothing within the limit is found; has the least that was.
        """
        if self._limit is None:
            return covers
        within = [one for one in covers.contenders if self.fits(one)]
        over = [one for one in covers.contenders if one not in within]
        if covers.found.candidates and not any(one.name == "search" for one in within):
            found = self._searched(covers, costs, repair, rules, deadline)
            within = [found, *within] if found is not None else within
        self.left_out = tuple(map(self._over, over))
        if not within:
            raise MemoryLimitError(
                f"nothing that was found fits into {size_text(self._limit)}; the least takes "
                f"{self._least}",
                value=self._least,
            )
        return replace(covers, contenders=tuple(within))

    def with_left_out(self, evaluated: Evaluated) -> Evaluated:
        """How all did, those included that were over the limit."""
        return Evaluated(
            (*evaluated.evaluations, *self.left_out),
            evaluated.winner,
            (*evaluated.comparisons, *[None] * len(self.left_out)),
        )

    def _over(self, contender: Contender) -> Evaluation:
        lowered = self._comparison.stated(contender)
        if contender.name == "search":
            contender = replace(contender, name="search:without a limit")
            lowered = replace(lowered, contender=contender)
        reason = f"takes {lowered.memory}; the limit is {size_text(self._limit or 0)}"
        return Evaluation.of(lowered, Cost(CostStatus.OUT_OF_MEMORY, reason=reason))

    def _searched(
        self,
        covers: Covers,
        costs: WorkloadCosts,
        repair: Callable[[Contender], Contender | None],
        rules: Sequence[PartitionRule],
        deadline: Deadline,
    ) -> Contender | None:
        """The first cover within the limit as bytes become dearer, with what else has room."""
        over = covers.contenders[0].partitioning
        seconds = sum(map(costs.guess, over.candidates))
        size = sum(map(self._size, over.candidates))
        for price in _PRICES:
            priced = PricedCosts(costs, self._size, price * seconds / max(size, 1))
            partitioning = cheapest_at_price(
                *(self._imported.graph, covers.found.candidates, priced, costs),
                *([one.partitioning for one in covers.contenders], rules, deadline),
            )
            if partitioning is None:
                return None
            found = repair(Contender("search", partitioning))
            if found is not None and self.fits(found):
                return self._filled(found, over, costs, repair)
            over = partitioning
        return None

    def _filled(
        self,
        within: Contender,
        over: Partitioning,
        costs: WorkloadCosts,
        repair: Callable[[Contender], Contender | None],
    ) -> Contender:
        """A cover within the limit with as much as has room of one over it, dearest bytes last."""

        def gained(part: CoverExchange) -> float:
            return sum(map(costs.guess, part.old)) - sum(map(costs.guess, part.new))

        def more(part: CoverExchange) -> int:
            return sum(map(self._size, part.new)) - sum(map(self._size, part.old))

        parts = [one for one in exchanges(within.partitioning, over) if gained(one) > 0]
        parts.sort(key=lambda one: gained(one) / max(more(one), 1), reverse=True)
        best, least, most = within, 0, len(parts)
        while least < most:
            count = (least + most + 1) // 2
            mixed = exchanged(self._imported.graph, within.partitioning, parts[:count])
            found = None
            if mixed is not None:
                seconds = sum(map(costs.guess, mixed.candidates))
                found = repair(replace(within, partitioning=replace(mixed, seconds=seconds)))
            if found is not None and self.fits(found):
                best, least = found, count
            else:
                most = count - 1
        return best

    def _size(self, candidate: Candidate) -> int:
        """What a candidate takes on its own, without weights, which every cover has."""
        if candidate.inline:
            return 0
        if candidate not in self._bytes:
            module = extract(self._imported.mod, self._imported.graph, candidate)
            use = memory_of(module, tuple(self._targets))
            self._bytes[candidate] = use.total_bytes - use.weights_bytes
        return self._bytes[candidate]
