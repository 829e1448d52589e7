"""A Ray cluster: builds on any node with cores, times on nodes whose devices are alike.

The head's side is :mod:`~collage.cost.engines.ray.engine`; ``cluster`` is what it asks of Ray,
``fleet`` who there is, a ``link`` one actor (with its ``life``), ``builder`` and ``runner`` what
searches see. An actor is a :class:`~collage.cost.engines.ray.host.Host` (over ``building`` or
``timing``, and what is ``under_way`` there), which knows nothing of Ray. What crosses are bytes:
``messages``, and archives of files (:mod:`collage.cost.engines.shipping`).
"""

from collage.cost.engines.ray.engine import RayEngine

__all__ = ["RayEngine"]
