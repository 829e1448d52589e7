"""What each Relax operator becomes in oneDNN's graph; importing this registers all of it."""

from collage.backends.onednn.operators import elementwise, movement, nn, recurrent, stepped

__all__ = ["elementwise", "movement", "nn", "recurrent", "stepped"]
