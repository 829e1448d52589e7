"""A worker process that runs libraries on another machine, through TVM's RPC server there.

Nothing is exported: ``session`` is the use of a device there, over the ``link`` that is kept to its
machine; ``facts`` is what a machine with TVM's runtime alone tells of itself.
"""

__all__: list[str] = []
