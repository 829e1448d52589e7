"""What is asked of whole partitioned modules, and done to them before their code is generated.

Constants become parameters, inputs that several bindings read are copied where a CUDA graph is to
be captured, and denormals are flushed between a function's first binding and its last;
:func:`planned_bytes` says what memory a function will take.
"""

from collage.backends.relax.modules.cuda_graph import all_capturable, copy_inputs
from collage.backends.relax.modules.denormals import flush_denormals
from collage.backends.relax.modules.lift_constants import lift_constants
from collage.backends.relax.modules.memory_plan import planned_bytes, tensor_bytes

__all__ = [
    "all_capturable",
    "copy_inputs",
    "flush_denormals",
    "lift_constants",
    "planned_bytes",
    "tensor_bytes",
]
