"""What runs inside a worker process, and nowhere else: nothing is exported.

``main`` answers requests; ``dispatch`` hands each to who does it and turns exceptions into typed
failures; ``build`` compiles, ``run`` loads, checks and times; ``session`` is the use of a device
(of a GPU in ``cuda/``), and ``sampling`` decides how many samples are enough. What a worker is
asked and what it answers are the types of :mod:`collage.cost.processes.messages`.
"""

__all__: list[str] = []
