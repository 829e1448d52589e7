"""Shapes that vary: buckets of them, and which may be padded to the next.

``buckets`` makes the sets of shapes that are compiled of what the user wrote; ``padding`` proves,
over two imports of a model, that an axis may be padded, by the rules of ``computing`` and
``moving``. ``rows`` finds outputs that have as many rows as the data say.
"""

from typing import TYPE_CHECKING

from collage._on_demand import on_demand
from collage.pipeline.shapes.buckets import Buckets, Extent, buckets_of
from collage.pipeline.shapes.rows import rows_of

if TYPE_CHECKING:
    from collage.pipeline.shapes.bucketed import Bucketed, import_buckets

__all__ = ["Bucketed", "Buckets", "Extent", "buckets_of", "import_buckets", "rows_of"]

# On demand: it imports models, and whoever imports one asks for its rows.
__getattr__, __dir__ = on_demand(__name__, {"bucketed": ("Bucketed", "import_buckets")})
