"""Parts of the zoo, ordered so that cutting off loses least: each family's first network first."""

from __future__ import annotations

GPU = (
    # Networks that were slow, refused or without an answer before.
    "diffusers/unet",
    "torchvision/r3d_18",
    "plain/dcgan_generator",
    "timm/efficientnet_b0",
    "timm/swin_tiny_patch4_window7_224",
    # One of each family.
    "transformers/llama",
    "torchvision/resnet50",
    "transformers/t5",
    "transformers/wav2vec2",
    "smp/unet_resnet18",
    "plain/dlrm",
    "timm/convnext_atto",
    "plain/edsr",
    "plain/yolo",
    "transformers/clip",
    "timm/vit_tiny_patch16_224",
    "monai/segresnet_3d",
    "torchvision/densenet121",
    "timm/mobilevit_xxs",
    "timm/mixer_s32_224",
    "transformers/deberta_v2",
    "plain/gru_forecast",
    "torchvision/alexnet",
    # A second one.
    "diffusers/autoencoder_kl",
    "transformers/mistral",
    "plain/cyclegan",
    "plain/conv_tasnet",
    "timm/mobilenetv3_large_100",
    "transformers/bert_base",
    "torchvision/deeplabv3_mobilenet_v3_large",
    "torchvision/retinanet_resnet50_fpn",
    "timm/seresnet50",
    "transformers/whisper",
    "diffusers/unet_conditioned",
    "monai/unet_3d",
    "plain/wavenet",
    "transformers/gemma2",
    "plain/two_towers",
    "timm/beit_base_patch16_224",
    "timm/maxvit_tiny_rw_224",
    "timm/regnety_004",
    "plain/nerf",
    "timm/poolformer_s12",
    "timm/efficientvit_b0",
    # And more.
    "diffusers/dit",
    "plain/hifigan",
    "transformers/bart",
    "transformers/segformer",
    "transformers/modernbert",
    "transformers/detr",
    "plain/esrgan",
    "plain/deepfm",
    "plain/lstm",
    "torchvision/shufflenet_v2_x1_0",
    "plain/spatial_transformer",
    "transformers/swin2sr",
    "transformers/patch_tst",
    "diffusers/sd3",
    "transformers/mamba",
    "torchvision/raft_small",
)
"""To be run on GPUs: sixty of all families."""

QUICK = (
    "plain/dcgan_generator",
    "plain/espcn",
    "plain/tcn",
    "plain/dlrm",
    "plain/graph_attention",
    "plain/gru_forecast",
    "plain/experts",
)
"""Small ones that need torch alone, for the quick suites."""

SAMPLES = {"gpu": GPU, "quick": QUICK}
