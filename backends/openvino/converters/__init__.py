"""What each Relax operator becomes in an OpenVINO model; importing this registers all of it."""

from collage.backends.openvino.converters import (
    bytes,
    elementwise,
    linear,
    movement,
    nn,
    recurrent,
    reductions,
)

__all__ = ["bytes", "elementwise", "linear", "movement", "nn", "recurrent", "reductions"]
