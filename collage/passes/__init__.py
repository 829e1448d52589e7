"""Passes over Relax modules that are no normalizations: they depend on device or partitioning.

Before the search: ``channels_last`` (by the rules of ``channels_last_rules``) and
``combine_parallel_matmul`` for devices whose libraries want that, ``expand_attention`` for those
that have no attention, ``write_out_recurrent`` for those that cannot loop over steps,
``fold_quantized`` for those that want no integers between operators, ``split_to_slices`` for those
whose libraries run regions of operators with one result each, ``seams`` where a search chooses
layouts. After it: ``lower`` turns a partitioning into ordinary Relax BYOC, and ``align_weights``
gives libraries weights that they can read with wide loads; ``join`` makes one module of several
functions', and ``drive`` adds one that calls them as data say.
"""

from collage.passes.align_weights import align_weights
from collage.passes.channels_last import to_channels_last
from collage.passes.combine_parallel_matmul import combine_parallel_matmul
from collage.passes.drive import drive
from collage.passes.expand_attention import expand_attention
from collage.passes.fold_quantized import fold_quantized
from collage.passes.join import join_functions
from collage.passes.lower import extract, lower, partition_names
from collage.passes.seams import with_seams
from collage.passes.split_to_slices import split_to_slices
from collage.passes.write_out_recurrent import write_out_recurrent

__all__ = [
    "align_weights",
    "combine_parallel_matmul",
    "drive",
    "expand_attention",
    "extract",
    "fold_quantized",
    "join_functions",
    "lower",
    "partition_names",
    "split_to_slices",
    "to_channels_last",
    "with_seams",
    "write_out_recurrent",
]
