"""cuDNN on an NVIDIA GPU: convolutions, products, pools, softmax, norms and attention."""

from collage.backends.cudnn.backend import CudnnBackend

__all__ = ["CudnnBackend"]
