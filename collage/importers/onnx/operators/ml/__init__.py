"""Operators of classical learning, the domain ``ai.onnx.ml``."""
