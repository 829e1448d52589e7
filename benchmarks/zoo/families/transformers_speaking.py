"""Language and speech networks from transformers' configurations."""

from __future__ import annotations

from typing import Any

from benchmarks.zoo.families.configured import Configured
from benchmarks.zoo.network import (
    DECODER,
    ENCODER,
    ENCODER_DECODER,
    MULTI,
    RECURRENT,
    SPEECH,
    Input,
    image,
    noise,
    ones,
    tokens,
)  # fmt: skip

_LENGTH = 128
_IDS = {"input_ids": tokens(1000, 1, _LENGTH)}
_HIDDEN = ("last_hidden_state",)
_FOUR = "4 layers"
_SMALL = {
    "vocab_size": 1000, "hidden_size": 256, "num_hidden_layers": 4, "num_attention_heads": 8,
    "intermediate_size": 768,
}  # fmt: skip
_GROUPED = {**_SMALL, "num_key_value_heads": 2, "pad_token_id": 0}


def _encoder(kind: str, **config: Any) -> Configured:
    return Configured(ENCODER, kind, {**_SMALL, **config}, _IDS, _HIDDEN, reduced=_FOUR)


def _decoder(kind: str, **config: Any) -> Configured:
    return Configured(DECODER, kind, {**_GROUPED, **config}, _IDS, ("logits",), reduced=_FOUR)


def _seq2seq(kind: str, config: dict[str, Any], **inputs: Input) -> Configured:
    given = {**(inputs or _IDS), "decoder_input_ids": tokens(1000, 1, 32)}
    return Configured(ENCODER_DECODER, kind, config, given, ("logits",), reduced="few layers")


def _speech(kind: str, config: dict[str, Any], **inputs: Input) -> Configured:
    given = inputs or {"input_values": noise(1, 16000)}
    return Configured(SPEECH, kind, config, given, reduced="few layers")


_BART = {
    "vocab_size": 1000, "d_model": 256, "encoder_layers": 3, "decoder_layers": 3,
    "encoder_attention_heads": 8, "decoder_attention_heads": 8, "encoder_ffn_dim": 768,
    "decoder_ffn_dim": 768, "pad_token_id": 0, "decoder_start_token_id": 1, "bos_token_id": 1,
    "eos_token_id": 2, "forced_eos_token_id": None,
}  # fmt: skip
_T5 = {
    "vocab_size": 1000, "d_model": 256, "d_kv": 32, "d_ff": 768, "num_layers": 3, "num_heads": 8,
    "decoder_start_token_id": 0,
}  # fmt: skip
_WAVE = {
    "hidden_size": 256, "num_hidden_layers": 3, "num_attention_heads": 8, "intermediate_size": 768,
    "conv_dim": (256,) * 7, "num_conv_pos_embedding_groups": 16, "num_conv_pos_embeddings": 64,
}  # fmt: skip

_ROWS = {
    "bert_base": Configured(
        ENCODER, "BertModel", {},
        {"input_ids": tokens(30522, 1, _LENGTH), "attention_mask": ones(1, _LENGTH)},
        ("last_hidden_state", "pooler_output"),
    ),
    "distilbert": Configured(
        ENCODER, "DistilBertForSequenceClassification",
        {"vocab_size": 1000, "dim": 256, "n_layers": 4, "n_heads": 8, "hidden_dim": 768}, _IDS,
        ("logits",), reduced=_FOUR,
    ),
    "roberta": _encoder("RobertaModel", pad_token_id=0),
    "albert": _encoder("AlbertModel", embedding_size=128),
    "electra": _encoder("ElectraModel", embedding_size=128),
    "deberta_v2": _encoder(
        "DebertaV2Model", relative_attention=True, pos_att_type=["p2c", "c2p"],
        position_buckets=32, type_vocab_size=0,
    ),
    "mpnet": _encoder("MPNetModel"),
    "convbert": _encoder("ConvBertModel", embedding_size=128),
    "nystromformer": _encoder("NystromformerModel"),
    "modernbert": _encoder(
        "ModernBertModel", pad_token_id=0, bos_token_id=1, eos_token_id=2, cls_token_id=1,
        sep_token_id=2, local_attention=32, global_attn_every_n_layers=3,
    ),
    "fnet": Configured(ENCODER, "FNetModel", {
        "vocab_size": 1000, "hidden_size": 256, "num_hidden_layers": 4, "intermediate_size": 768,
    }, _IDS, _HIDDEN, reduced=_FOUR),
    "xlnet": Configured(
        ENCODER, "XLNetModel",
        {"vocab_size": 1000, "d_model": 256, "n_layer": 4, "n_head": 8, "d_inner": 768}, _IDS,
        _HIDDEN, {"use_mems": False}, _FOUR,
    ),
    "layoutlm": Configured(
        MULTI, "LayoutLMModel", _SMALL,
        {**_IDS, "bbox": ones(1, _LENGTH, 4), "attention_mask": ones(1, _LENGTH)},
        ("last_hidden_state", "pooler_output"), reduced=_FOUR,
    ),
    "gpt2": Configured(DECODER, "GPT2LMHeadModel", {}, _IDS, ("logits",)),
    "gpt_neo": Configured(
        DECODER, "GPTNeoForCausalLM",
        {"vocab_size": 1000, "hidden_size": 256, "num_layers": 4, "num_heads": 8,
         "attention_types": [[["global", "local"], 2]], "window_size": 32}, _IDS, ("logits",),
        reduced=_FOUR,
    ),
    "gptj": Configured(
        DECODER, "GPTJForCausalLM",
        {"vocab_size": 1000, "n_embd": 256, "n_layer": 4, "n_head": 8, "rotary_dim": 16}, _IDS,
        ("logits",), reduced=_FOUR,
    ),
    "gpt_neox": _decoder("GPTNeoXForCausalLM"),
    "opt": Configured(
        DECODER, "OPTForCausalLM",
        {"vocab_size": 1000, "hidden_size": 256, "num_hidden_layers": 4, "ffn_dim": 768,
         "num_attention_heads": 8, "word_embed_proj_dim": 256}, _IDS, ("logits",), reduced=_FOUR,
    ),
    "bloom": Configured(
        DECODER, "BloomForCausalLM",
        {"vocab_size": 1000, "hidden_size": 256, "n_layer": 4, "n_head": 8}, _IDS, ("logits",),
        reduced=_FOUR,
    ),
    "llama": _decoder("LlamaForCausalLM"),
    "mistral": _decoder("MistralForCausalLM", sliding_window=32),
    "qwen2": _decoder("Qwen2ForCausalLM"),
    "qwen3": _decoder("Qwen3ForCausalLM", head_dim=32),
    "gemma2": _decoder("Gemma2ForCausalLM", head_dim=32, sliding_window=32),
    "gemma3": _decoder("Gemma3ForCausalLM", head_dim=32, sliding_window=32),
    "phi": _decoder("PhiForCausalLM"),
    "phi3": _decoder("Phi3ForCausalLM"),
    "stablelm": _decoder("StableLmForCausalLM"),
    "falcon": _decoder("FalconForCausalLM", multi_query=True),
    "cohere": _decoder("CohereForCausalLM"),
    "olmo2": _decoder("Olmo2ForCausalLM"),
    "starcoder2": _decoder("Starcoder2ForCausalLM"),
    "mixtral": _decoder("MixtralForCausalLM", num_local_experts=4, sliding_window=None,
                        experts_implementation="batched_mm"),
    "qwen3_moe": _decoder(
        "Qwen3MoeForCausalLM", head_dim=32, num_experts=8, num_experts_per_tok=2,
        moe_intermediate_size=256, experts_implementation="batched_mm",
    ),
    "deepseek_v3": _decoder(
        "DeepseekV3ForCausalLM", num_key_value_heads=8, n_routed_experts=8, num_experts_per_tok=2,
        moe_intermediate_size=256, n_group=2, topk_group=1, first_k_dense_replace=1,
        q_lora_rank=96, kv_lora_rank=64, qk_rope_head_dim=16, qk_nope_head_dim=32, v_head_dim=32,
        experts_implementation="batched_mm",
    ),
    "mamba": Configured(
        RECURRENT, "MambaForCausalLM",
        {"vocab_size": 1000, "hidden_size": 192, "num_hidden_layers": 2, "state_size": 16},
        {"input_ids": tokens(1000, 1, 32)}, ("logits",), reduced="2 layers",
    ),
    "t5": _seq2seq("T5ForConditionalGeneration", _T5),
    "bart": _seq2seq("BartForConditionalGeneration", _BART),
    "pegasus": _seq2seq("PegasusForConditionalGeneration", _BART),
    "marian": _seq2seq("MarianMTModel", {**_BART, "decoder_vocab_size": 1000}),
    "whisper": _seq2seq(
        "WhisperForConditionalGeneration",
        {**_BART, "num_mel_bins": 80, "max_source_positions": 500,
         "suppress_tokens": None, "begin_suppress_tokens": None},
        input_features=image(1, 80, 1000),
    ),
    "speech_to_text": _seq2seq(
        "Speech2TextForConditionalGeneration", {**_BART, "conv_channels": 256},
        input_features=noise(1, 400, 80),
    ),
    "wav2vec2": _speech("Wav2Vec2Model", _WAVE),
    "hubert": _speech("HubertModel", {**_WAVE, "do_stable_layer_norm": True,
                                      "feat_extract_norm": "layer"}),
    "wavlm": _speech("WavLMModel", _WAVE),
    "sew": _speech("SEWModel", {
        "hidden_size": 256, "num_hidden_layers": 3, "num_attention_heads": 8,
        "intermediate_size": 768, "num_conv_pos_embedding_groups": 16,
    }),
    "audio_spectrogram": _speech(
        "ASTForAudioClassification",
        {"hidden_size": 192, "num_hidden_layers": 4, "num_attention_heads": 3,
         "intermediate_size": 768, "max_length": 256},
        input_values=noise(1, 256, 128),
    ),
    "hifigan": _speech(
        "SpeechT5HifiGan", {"upsample_initial_channel": 128, "normalize_before": False},
        spectrogram=noise(1, 64, 80),
    ),
    "encodec": _speech(
        "EncodecModel", {"num_filters": 8, "hidden_size": 32, "codebook_dim": 32},
        input_values=noise(1, 1, 4800),
    ),
    "vits_text": _speech("VitsModel", {}, input_ids=tokens(30, 1, 32)),
    "patch_tst": Configured(
        MULTI, "PatchTSTForPrediction",
        {"num_input_channels": 3, "context_length": 96, "prediction_length": 24, "d_model": 64,
         "num_hidden_layers": 3, "patch_length": 8, "patch_stride": 8},
        {"past_values": noise(1, 96, 3)}, ("prediction_outputs",),
    ),
}  # fmt: skip

NETWORKS = [row.network(name) for name, row in _ROWS.items()]
