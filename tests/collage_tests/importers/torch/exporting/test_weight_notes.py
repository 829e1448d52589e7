"""What PyTorch notes of weights is copied to other graphs in time linear in their number."""

from __future__ import annotations

from typing import Any

import pytest

from collage.importers import load_model

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch", exc_type=ImportError)


def lists_of_weights(layers: int, monkeypatch: pytest.MonkeyPatch) -> int:
    """How many dictionaries of all weights PyTorch makes while a net of so many is imported."""
    from torch.export.graph_signature import ExportGraphSignature

    made, own = [], ExportGraphSignature.inputs_to_parameters
    with monkeypatch.context() as patch:

        def counted(self: Any) -> Any:
            made.append(self)
            return own.fget(self)

        patch.setattr(ExportGraphSignature, "inputs_to_parameters", property(counted))
        net = torch.nn.Sequential(*(torch.nn.Linear(4, 4) for _ in range(layers)))
        load_model(net, example_inputs=(torch.zeros(1, 4),))
    return len(made)


def test_they_are_listed_as_often_whatever_their_number(monkeypatch: pytest.MonkeyPatch) -> None:
    """For each weight there were four such dictionaries, each time."""
    assert lists_of_weights(3, monkeypatch) == lists_of_weights(9, monkeypatch)


def test_placeholders_have_what_pytorch_gives_them() -> None:
    from collage.importers.torch.exporting.weight_notes import notes_of_weights

    def noted() -> list[Any]:
        net = torch.nn.Sequential(torch.nn.Conv2d(2, 3, 3), torch.nn.BatchNorm2d(3)).eval()
        program = torch.export.export(net, (torch.zeros(1, 2, 8, 8),)).run_decompositions()
        nodes = program.graph.find_nodes(op="placeholder")
        return [(node.name, sorted(node.meta), node.meta["val"].shape) for node in nodes]

    own = noted()
    with notes_of_weights():
        assert noted() == own
