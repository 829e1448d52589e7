"""What a backend's libraries are made by, as a digest: records of measurements are keyed by it.

:func:`source_digest` follows a backend's imports; what it found in a source is not looked for
again while :func:`facts_kept_in` names the folder where it is kept.
"""

from collage.backends.contract.digest.source_facts import facts_kept_in
from collage.backends.contract.digest.sources import source_digest

__all__ = [
    "facts_kept_in",
    "source_digest",
]
