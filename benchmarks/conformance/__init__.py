"""The ONNX standard's own cases through ``collage.optimize``, with every backend of a CPU."""
