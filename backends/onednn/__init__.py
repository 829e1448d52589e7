"""oneDNN on a CPU: whole regions with their own layouts, packed weights and fused chains."""

from collage.backends.onednn.backend import OnednnBackend

__all__ = ["OnednnBackend"]
