"""Partitions as graphs of cuDNN's operations, a family a file; a graph itself is in ``problem``.

:func:`convolution_graph` and :func:`matmul_graph` take along an :class:`Epilogue`;
:func:`attention_graph` is made of an :class:`Attention`, which one operator may be or a chain of
several. Pools, softmax and norms are graphs by themselves. What cuDNN cannot run is refused with
the reason.
"""

from collage.backends.cudnn.graphs.attention import (
    Attention,
    attention_graph,
    attention_of_chain,
    attention_of_operator,
)
from collage.backends.cudnn.graphs.convolution import CONVOLUTIONS, convolution_graph
from collage.backends.cudnn.graphs.epilogue import Epilogue, activation_of
from collage.backends.cudnn.graphs.product import matmul_graph
from collage.backends.cudnn.graphs.single import norm_graph, pool_graph, softmax_graph

__all__ = [
    "CONVOLUTIONS",
    "Attention",
    "Epilogue",
    "activation_of",
    "attention_graph",
    "attention_of_chain",
    "attention_of_operator",
    "convolution_graph",
    "matmul_graph",
    "norm_graph",
    "pool_graph",
    "softmax_graph",
]
