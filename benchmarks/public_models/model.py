"""What a public network is: a file in a wheel, and what it is fed."""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.public_models.inputs import Fed


@dataclass(frozen=True)
class PublicModel:
    """A network in a wheel.

    Attributes
    ----------
    wheel, version : str
        As pip names them.
    path : str
        In the wheel.
    inputs : tuple of Fed
        All of the graph's.
    """

    wheel: str
    version: str
    path: str
    inputs: tuple[Fed, ...]

    @property
    def name(self) -> str:
        """The wheel and the file's path below the package, without its ending."""
        below = self.path.split("/", 1)[-1]
        return f"{self.wheel}/{below.removesuffix('.onnx')}"

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Concrete shapes by input."""
        return {fed.name: fed.shape for fed in self.inputs}
