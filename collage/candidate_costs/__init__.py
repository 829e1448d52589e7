"""What a candidate costs: the protocol of the search, answered by a model of costs.

:class:`WorkloadCosts` takes each candidate out of the module and asks for its workload, the same
one once. ``likeness`` tells which candidates are alike before anything is taken out, ``rates`` and
``estimates`` guess what was not asked yet, ``streamed`` asks while a search goes on, and
``timed_together`` replaces costs that were decided beside each other.
"""

from collage.candidate_costs.workload_costs import WorkloadCosts

__all__ = ["WorkloadCosts"]
