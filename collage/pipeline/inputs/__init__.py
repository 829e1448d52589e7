"""What whole models are run on: the user's samples, or such as keep a network in its working range.

``samples`` gives them with what must come out; ``drawing`` draws where nobody gave any, within the
``working_range`` that a network's batch norms tell. ``later`` has that done in the background.
"""

from collage.pipeline.inputs.background_sequence import BackgroundSequence
from collage.pipeline.inputs.drawing import draw_inputs
from collage.pipeline.inputs.samples import (
    Inputs,
    Samples,
    as_array,
    digest,
    given_arrays,
    listed,
    samples_of,
)
from collage.pipeline.inputs.working_range import Range, working_ranges

__all__ = [
    "BackgroundSequence",
    "Inputs",
    "Range",
    "Samples",
    "as_array",
    "digest",
    "draw_inputs",
    "given_arrays",
    "listed",
    "samples_of",
    "working_ranges",
]
