"""What oneDNN runs, as pattern triples.

A region is fused anew as a whole (``fuse.py``), so these patterns say what may stand in a region
and which chains are worth being one candidate; they need not list every chain.
"""

from __future__ import annotations

from collage.backends.contract import PatternTriple
from collage.backends.onednn.patterns.elementwise import elementwise
from collage.backends.onednn.patterns.movement import movement
from collage.backends.onednn.patterns.products import chains, multiplies
from collage.backends.onednn.patterns.recurrent import recurrent
from collage.backends.onednn.patterns.simple import simple
from collage.backends.onednn.patterns.stepped import stepped

__all__ = ["multiplies", "pattern_table"]


def pattern_table() -> list[PatternTriple]:
    """All triples; later ones have a higher priority.

    Examples
    --------
    >>> names = [triple.name for triple in pattern_table()]
    >>> names.index("onednn.conv2d") < names.index("onednn.conv2d_bias_relu")
    True
    """
    return [*movement(), *elementwise(), *simple(), *chains(), *stepped(), *recurrent()]
