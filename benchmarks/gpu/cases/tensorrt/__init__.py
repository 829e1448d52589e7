"""Cases of TensorRT."""
