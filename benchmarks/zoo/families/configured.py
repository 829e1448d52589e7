"""Networks that a transformers configuration describes: the row, and how it is made."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from torch import nn

from benchmarks.zoo.network import Input, Network, Tensors


@dataclass(frozen=True)
class Configured:
    """A network of transformers.

    Attributes
    ----------
    family : str
    kind : str
        The model's class; its configuration's is found by it.
    config : dict
        What differs from the configuration's own defaults.
    inputs : dict of str to Input
        By keyword.
    pick : tuple of str
        Of the result's fields.
    fixed : dict
        Keywords that stay the same.
    reduced : str
        As :class:`Network` has it.
    """

    family: str
    kind: str
    config: dict[str, Any]
    inputs: dict[str, Input]
    pick: tuple[str, ...] = ()
    fixed: dict[str, Any] = field(default_factory=dict)
    reduced: str = ""

    def network(self, name: str) -> Network:
        """As the zoo has it."""
        return Network(
            f"transformers/{name}",
            self.family,
            _maker(self),
            tuple(self.inputs.values()),
            ("transformers",),
            self.reduced,
        )


def _maker(row: Configured) -> Callable[[], nn.Module]:
    def make() -> nn.Module:
        import transformers

        kind = getattr(transformers, row.kind)
        # Of two scores, the default, one that is rounded luckily makes any other one look wrong.
        scores = {"num_labels": 1000} if row.kind.endswith("Classification") else {}
        config = kind.config_class(**{**scores, **row.config})
        if hasattr(config, "use_cache"):
            # A cache is a Python object that grows; one pass over a sequence needs none.
            config.use_cache = False
        return Tensors(kind(config), tuple(row.inputs), row.fixed, row.pick)

    return make
