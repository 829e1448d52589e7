"""Wrong whole models are looked into: what makes them wrong is found, and searched around."""

from __future__ import annotations

from collections.abc import Sequence

from collage.backends.contract.errors import MeasurementError
from collage.cost.base import CostStatus
from collage.cost.progress import ProgressCallback, ProgressEvent, ignore
from collage.end_to_end import EndToEndComparison, Evaluation, NothingRunsError, Refusal

ROUNDS = 4
"""How often a search begins anew because its answer was wrong."""


class SecondLook:
    """Decides whether to search again, without the partitions that made a model wrong.

    Parameters
    ----------
    comparison : EndToEndComparison
        Finds the culprits, and records that they are wrong.
    replay : bool
        Whether nothing may be run: the log knows the culprits already.
    progress : callable
        Informed of each culprit.

    Attributes
    ----------
    found : list of Refusal
        Every culprit so far.

    Examples
    --------
    >>> from collage.end_to_end import baselines
    >>> from collage.testing.estimated import estimated_search
    >>> search = estimated_search({"tvm": 1e-6})
    >>> look = SecondLook(search.comparison, replay=False)
    >>> seeds = baselines(search.graph, search.targets)
    >>> look.is_worth_it(search.comparison.compare(seeds))
    False
    """

    def __init__(
        self, comparison: EndToEndComparison, *, replay: bool, progress: ProgressCallback = ignore
    ) -> None:
        self.found: list[Refusal] = []
        self._comparison = comparison
        self._rounds = 0 if replay else ROUNDS
        self._progress = progress

    def is_worth_it(self, evaluations: Sequence[Evaluation]) -> bool:
        """Whether culprits were found, so that another search gives something else.

        The search's answer is looked into where it is wrong, and all that are where nothing runs:
        a baseline that is wrong beside others that are right is no loss.
        """
        if self._rounds == 0:
            return False
        self._rounds -= 1
        nothing_runs = not any(one.cost.is_valid for one in evaluations)
        seen: set[str] = set()
        culprits: list[Refusal] = []
        for one in evaluations:
            wrong = one.cost.status is CostStatus.WRONG_RESULT and one.key not in seen
            if wrong and (nothing_runs or one.contender.name == "search"):
                seen.add(one.key)
                message = f"{one.contender.name} is wrong: {one.cost.reason}; looking for the part"
                self._progress(ProgressEvent("culprit", len(self.found), 0, message))
                culprits += self._comparison.culprits(one)
        for culprit in culprits:
            self.found.append(culprit)
            self._progress(ProgressEvent("culprit", len(self.found), 0, culprit.reason))
        return bool(culprits)

    def failure(self, error: NothingRunsError) -> MeasurementError:
        """The error where nothing runs, with the names of what was found to be wrong."""
        if not self.found:
            return error
        named = "; ".join(dict.fromkeys(culprit.reason for culprit in self.found))
        return NothingRunsError(f"{error}; wrong were {named}", error.evaluations)
