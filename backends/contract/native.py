"""The part of the contract for a backend that compiles through TVM itself."""

from collage.backends.contract.backend import PARTITION_ATTR, NativeBackend

__all__ = ["PARTITION_ATTR", "NativeBackend"]
