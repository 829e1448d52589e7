"""Rules that take a rule's candidates and leave some of them out: what is not allowed, not taken by
its library, not convex, or never worth having.
"""

from collage.search.rules.filters.accepted import AcceptedRule, region_verdict
from collage.search.rules.filters.dominated import UndominatedRule
from collage.search.rules.filters.only_valid import OnlyValidRule
from collage.search.rules.filters.restricted import RestrictedRule

__all__ = [
    "AcceptedRule",
    "OnlyValidRule",
    "RestrictedRule",
    "UndominatedRule",
    "region_verdict",
]
