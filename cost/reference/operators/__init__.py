"""The operators of the reference, a family a file; each takes and gives numpy arrays."""

from collage.cost.reference.operators.attention import ATTENTION
from collage.cost.reference.operators.elementwise import ELEMENTWISE
from collage.cost.reference.operators.indexing import INDEXING
from collage.cost.reference.operators.linear import LINEAR
from collage.cost.reference.operators.order_statistics import ORDER_STATISTICS
from collage.cost.reference.operators.pools import POOLS
from collage.cost.reference.operators.recurrent import RECURRENT
from collage.cost.reference.operators.reductions import REDUCTIONS
from collage.cost.reference.operators.running import RUNNING
from collage.cost.reference.operators.sampling import SAMPLING
from collage.cost.reference.operators.search import SEARCH
from collage.cost.reference.operators.shapes import SHAPES
from collage.cost.reference.operators.stepped import STEPPED
from collage.cost.reference.operators.trees import TREES
from collage.cost.reference.values import OperatorTable

OPERATORS: OperatorTable = {
    **ATTENTION,
    **ELEMENTWISE,
    **INDEXING,
    **LINEAR,
    **ORDER_STATISTICS,
    **POOLS,
    **RECURRENT,
    **RUNNING,
    **REDUCTIONS,
    **SAMPLING,
    **SEARCH,
    **SHAPES,
    **STEPPED,
    **TREES,
}
"""By their names in Relax."""

__all__ = ["OPERATORS"]
