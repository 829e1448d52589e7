"""OpenVINO on a CPU: whole regions as models of OpenVINO's own, run by its CPU plugin."""

from collage.backends.openvino.backend import OpenvinoBackend

__all__ = ["OpenvinoBackend"]
