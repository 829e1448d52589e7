"""What a compiled model takes in memory, by what it is for."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class MemoryUse:
    """Bytes, by what they are for.

    Attributes
    ----------
    weights_bytes : int
        Constants in the library, each once.
    copies_bytes : int
        What backends make of their own: packed for their kernels.
    activations_bytes : int
        Intermediate results and outputs.
    workspace_bytes : int
        The most that kernels ask for.
    loading_bytes : int
        What is needed besides weights and their copies while the library is loaded, before any
        activations are.

    Examples
    --------
    >>> use = MemoryUse(4 << 20, 4 << 20, 3 << 19, 0, loading_bytes=1 << 20)
    >>> use.total_bytes
    9961472
    >>> str(use)
    '9.5 MiB: weights 4.0 MiB, copies of weights 4.0 MiB, activations 1.5 MiB'
    """

    weights_bytes: int
    copies_bytes: int
    activations_bytes: int
    workspace_bytes: int
    loading_bytes: int = 0

    @property
    def total_bytes(self) -> int:
        """The most at any time."""
        running = self.activations_bytes + self.workspace_bytes
        return self.weights_bytes + self.copies_bytes + max(running, self.loading_bytes)

    @property
    def held_bytes(self) -> int:
        """What a process holds of it that was called, if what was copied was let go of."""
        weights = max(self.weights_bytes, self.copies_bytes)
        return weights + self.activations_bytes + self.workspace_bytes

    def __str__(self) -> str:
        parts = {
            "weights": self.weights_bytes,
            "copies of weights": self.copies_bytes,
            "activations": self.activations_bytes,
            "workspace": self.workspace_bytes,
        }
        if self.loading_bytes > self.activations_bytes + self.workspace_bytes:
            parts |= {"while loading": self.loading_bytes}
            del parts["activations"], parts["workspace"]
        listed = ", ".join(f"{name} {size_text(size)}" for name, size in parts.items() if size)
        return f"{size_text(self.total_bytes)}: {listed or 'nothing'}"


def size_text(size: float) -> str:
    """A number of bytes for people.

    Examples
    --------
    >>> size_text(812), size_text(3 << 19)
    ('812 B', '1.5 MiB')
    """
    for unit in ("B", "KiB", "MiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} GiB"
