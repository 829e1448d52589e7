"""Networks of brain waves, molecules, reactions and tables."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.public_models.inputs import Fed, normal, tokens, truth, unit
from benchmarks.public_models.model import PublicModel


def sciences() -> Iterator[PublicModel]:
    """All of them."""
    waves = ("brainmaze-eeg-models", "0.1.0", "brainmaze_eeg_models")
    for file in ("modelA_paper", "modelB_full"):
        yield PublicModel(
            *waves[:2], f"{waves[2]}/seizure/_models/{file}.onnx", (normal("x", 1, 100, 120),)
        )
    for file in ("eeg", "ieeg"):
        yield PublicModel(
            *(*waves[:2], f"{waves[2]}/spindles/_models/spindle-detector-{file}.onnx"),
            (normal("raw_signal", 1, 1, 7500), normal("spectrogram", 1, 15, 7500)),
        )
    yield PublicModel(
        *("caustic-nmr", "0.4.1", "caustic/data/best_v2_carbons.onnx"), _protein(96, 800, 12)
    )
    yield PublicModel(
        *("chython-rxnmap", "2.0", "chython_rxnmap/rxnmap.onnx"),
        (
            tokens("atoms", 100, 1, 48, low=1),
            tokens("neighbors", 10, 1, 48),
            tokens("distances", 8, 1, 48, 48),
            tokens("roles", 3, 1, 48, low=1),
        ),
    )
    for file in ("gradient_boosting_regressor", "k_neighbors_classifier", "k_neighbors_regressor"):
        yield _surrogate(file)
    yield _surrogate("k_neighbors_classifier.validity")


def _surrogate(file: str) -> PublicModel:
    return PublicModel(
        *("surfaces-onnx-files", "0.0.1", f"surfaces_onnx_files/{file}.onnx"),
        (unit("input", 16, 4),),
    )


def _protein(atoms: int, edges: int, residues: int) -> tuple[Fed, ...]:
    """A molecule's graph: atoms, who is near whom, and of which residues shifts are asked."""
    return (
        tokens("element", 4, atoms),
        tokens("amino_acid", 20, atoms),
        tokens("atom_role", 4, atoms),
        unit("bfactor", atoms),
        tokens("edge_index", atoms, 2, edges),
        unit("edge_dist", edges),
        tokens("seq_sep", 4, edges),
        unit("same_residue", edges),
        tokens("target_indices", atoms, residues, 6),
        truth("target_mask", residues, 6),
        tokens("residue_types", 20, residues),
        normal("residue_geometry", residues, 52),
        normal("target_environment", residues, 6, 15),
        normal("temperature_feature", residues, 1),
        unit("target_atom_rsasa", residues, 6),
        normal("pos", atoms, 3, scale=5.0),
        normal("node_normal", atoms, 3),
        unit("is_hbond", edges),
        unit("hb_cos", edges),
    )
