"""Devices behind TVM's RPC tracker: built for here, uploaded, timed there.

``engine`` names them, ``tracker`` speaks with the tracker, ``sessions`` takes servers from it and
gives them back, ``runner`` times candidates and ``model_timer`` whole models in such sessions.
``templates/guard.c`` is what watches over a session at the other end.
"""

from collage.cost.engines.rpc.engine import RpcEngine

__all__ = ["RpcEngine"]
