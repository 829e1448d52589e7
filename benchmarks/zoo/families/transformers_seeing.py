"""Networks that see, from transformers' configurations; and those that see and read."""

from __future__ import annotations

from typing import Any

from benchmarks.zoo.families.configured import Configured
from benchmarks.zoo.network import (
    CONVNEXT,
    DETECTION,
    MULTI,
    SEGMENTATION,
    SUPER_RESOLUTION,
    VISION,
    VOLUME,
    WINDOWS,
    image,
    noise,
    ones,
    tokens,
)  # fmt: skip

_FOUR = "4 layers"
_PIXELS = {"pixel_values": image(1, 3, 224, 224)}
_SMALL: dict[str, Any] = {
    "hidden_size": 192, "num_hidden_layers": 4, "num_attention_heads": 3, "intermediate_size": 768,
}  # fmt: skip
_LOGITS = ("logits",)
_RESNET = {
    "model_type": "resnet", "out_features": ["stage4"], "layer_type": "basic",
    "hidden_sizes": [64, 128, 256, 512], "depths": [2, 2, 2, 2],
}  # fmt: skip
_DETR = {
    "d_model": 128, "encoder_layers": 2, "decoder_layers": 2, "encoder_ffn_dim": 512,
    "decoder_ffn_dim": 512, "encoder_attention_heads": 4, "decoder_attention_heads": 4,
    "num_queries": 20, "use_timm_backbone": False, "use_pretrained_backbone": False,
    "backbone": None, "backbone_kwargs": None,
}  # fmt: skip
_TOWER = {**_SMALL, "image_size": 224, "patch_size": 16, "vocab_size": 1000}
_PAIR = {
    "input_ids": tokens(1000, 1, 32), "pixel_values": image(1, 3, 224, 224),
    "attention_mask": ones(1, 32),
}  # fmt: skip


def _towers(kind: str, **config: Any) -> Configured:
    towers = {
        "text_config": {**_TOWER, "eos_token_id": 2, "bos_token_id": 1, "pad_token_id": 0},
        "vision_config": _TOWER,
    }
    return Configured(
        MULTI, kind, {**towers, **config}, _PAIR, ("logits_per_image", "text_embeds"), reduced=_FOUR
    )


def _vision(kind: str, config: dict[str, Any], family: str = VISION) -> Configured:
    return Configured(family, kind, config, _PIXELS, reduced=_FOUR)


_ROWS = {
    "vit_base": Configured(VISION, "ViTForImageClassification", {}, _PIXELS, _LOGITS),
    "dinov2": _vision("Dinov2Model", {
        "hidden_size": 192, "num_hidden_layers": 4, "num_attention_heads": 3, "image_size": 224,
    }),
    "data2vec_vision": _vision(
        "Data2VecVisionModel", {**_SMALL, "use_relative_position_bias": True},
    ),
    "swin": Configured(
        WINDOWS, "SwinForImageClassification", {"embed_dim": 48, "num_heads": [2, 4, 8, 16]},
        _PIXELS, _LOGITS,
    ),
    "convnextv2": Configured(
        CONVNEXT, "ConvNextV2ForImageClassification",
        {"hidden_sizes": [48, 96, 192, 384], "depths": [2, 2, 6, 2]}, _PIXELS, _LOGITS,
    ),
    "segformer": Configured(
        SEGMENTATION, "SegformerForSemanticSegmentation", {},
        {"pixel_values": image(1, 3, 256, 256)}, _LOGITS,
    ),
    "dpt": Configured(
        SEGMENTATION, "DPTForDepthEstimation",
        {**_SMALL, "image_size": 224, "is_hybrid": False, "backbone_out_indices": [0, 1, 2, 3],
         "neck_hidden_sizes": [32, 64, 96, 192], "fusion_hidden_size": 64}, _PIXELS,
        ("predicted_depth",), reduced=_FOUR,
    ),
    "detr": Configured(
        DETECTION, "DetrForObjectDetection", {**_DETR, "backbone_config": _RESNET},
        {"pixel_values": image(1, 3, 256, 256)}, ("logits", "pred_boxes"), reduced="2 + 2 layers",
    ),
    "rt_detr": Configured(
        DETECTION, "RTDetrForObjectDetection",
        {"d_model": 128, "encoder_hidden_dim": 128, "encoder_ffn_dim": 512, "decoder_layers": 2,
         "decoder_ffn_dim": 512, "decoder_attention_heads": 4, "encoder_attention_heads": 4,
         "num_queries": 50, "decoder_in_channels": [128, 128, 128],
         "encoder_in_channels": [128, 256, 512],
         "backbone_config": {**_RESNET, "model_type": "rt_detr_resnet",
                             "out_features": ["stage2", "stage3", "stage4"]}},
        {"pixel_values": image(1, 3, 256, 256)}, ("logits", "pred_boxes"), reduced="2 layers",
    ),
    "sam_vision": Configured(
        WINDOWS, "SamVisionModel",
        {**_SMALL, "image_size": 512, "patch_size": 16, "window_size": 7, "mlp_dim": 768,
         "output_channels": 64, "global_attn_indexes": [1, 3]},
        {"pixel_values": image(1, 3, 512, 512)}, ("last_hidden_state",), reduced=_FOUR,
    ),
    "yolos": Configured(
        DETECTION, "YolosForObjectDetection",
        {**_SMALL, "image_size": [224, 224], "num_detection_tokens": 20}, _PIXELS,
        ("logits", "pred_boxes"), reduced=_FOUR,
    ),
    "clip": _towers("CLIPModel"),
    "siglip": _towers("SiglipModel"),
    "video_mae": Configured(
        VOLUME, "VideoMAEForVideoClassification", {**_SMALL, "num_frames": 8, "image_size": 112},
        {"pixel_values": noise(1, 8, 3, 112, 112)}, _LOGITS, reduced=_FOUR,
    ),
    "timesformer": Configured(
        VOLUME, "TimesformerForVideoClassification",
        {**_SMALL, "num_frames": 4, "image_size": 112}, {"pixel_values": noise(1, 4, 3, 112, 112)},
        _LOGITS, reduced=_FOUR,
    ),
    "swin2sr": Configured(
        SUPER_RESOLUTION, "Swin2SRForImageSuperResolution",
        {"embed_dim": 60, "depths": [2, 2], "num_heads": [6, 6], "upsampler": "pixelshuffledirect",
         "image_size": 64}, {"pixel_values": image(1, 3, 64, 64)}, ("reconstruction",),
        reduced="2 of 6 stages",
    ),
    "visual_bert": Configured(
        MULTI, "VisualBertModel",
        {**_SMALL, "vocab_size": 1000, "visual_embedding_dim": 128},
        {"input_ids": tokens(1000, 1, 32), "visual_embeds": noise(1, 36, 128)},
        ("last_hidden_state", "pooler_output"), reduced=_FOUR,
    ),
    "lxmert": Configured(
        MULTI, "LxmertModel",
        {"vocab_size": 1000, "hidden_size": 192, "num_attention_heads": 3, "intermediate_size": 768,
         "l_layers": 2, "x_layers": 2, "r_layers": 2, "visual_feat_dim": 128},
        {"input_ids": tokens(1000, 1, 32), "visual_feats": noise(1, 36, 128),
         "visual_pos": noise(1, 36, 4)},
        ("language_output", "vision_output", "pooled_output"), reduced="2 + 2 + 2 layers",
    ),
}  # fmt: skip

NETWORKS = [row.network(name) for name, row in _ROWS.items()]
