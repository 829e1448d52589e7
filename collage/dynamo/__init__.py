"""``torch.compile(model, backend="collage")``: PyTorch traces, this project searches and compiles.

PyTorch finds :func:`compile_graph` through the entry-point group ``torch_dynamo_backends``. Its own
AOTAutograd makes each traced graph a function without side effects (``backend``); a graph is
compiled at its first call, when its weights and shapes are known, and again for others
(``graph``). ``options`` is what a user may ask for.
"""

from collage.dynamo.backend import compile_graph

__all__ = ["compile_graph"]
