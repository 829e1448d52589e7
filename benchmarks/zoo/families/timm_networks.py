"""Image networks from timm."""

from __future__ import annotations

from collections.abc import Callable

from torch import nn

from benchmarks.zoo.network import (
    CLASSIC,
    CONVNEXT,
    DENSE,
    DEPTHWISE,
    HYBRID,
    MIXER,
    RECURRENT,
    RESIDUAL,
    VISION,
    WINDOWS,
    Network,
    image,
)  # fmt: skip

_FAMILIES: dict[str, dict[str, int]] = {
    # Names as timm has them, and the side of their images.
    RESIDUAL: {
        "resnet18": 224,
        "resnet50d": 224,
        "resnetblur18": 224,
        "seresnet50": 224,
        "ecaresnet26t": 224,
        "skresnet18": 224,
        "res2net50_26w_4s": 224,
        "nf_resnet50": 224,
        "resnetv2_50": 224,
        "dm_nfnet_f0": 192,
        "regnety_004": 224,
        "repvgg_a0": 224,
        "darknet53": 256,
        "cspresnet50": 256,
        "resnest14d": 224,
    },
    CLASSIC: {"selecsls42b": 224, "hgnetv2_b0": 224, "xception41": 224},
    DEPTHWISE: {
        "efficientnet_b0": 224,
        "tf_efficientnet_lite0": 224,
        "mobilenetv3_large_100": 224,
        "mobilenetv4_conv_small": 224,
        "mixnet_s": 224,
        "ghostnet_100": 224,
        "fbnetc_100": 224,
        "rexnet_100": 224,
        "mobileone_s0": 224,
        "lcnet_050": 224,
        "tinynet_a": 192,
        "repvit_m0_9": 224,
        "starnet_s1": 224,
        "hardcorenas_a": 224,
        "fasternet_t0": 224,
    },
    DENSE: {
        "densenet121": 224,
        "dla34": 224,
        "dpn68": 224,
        "ese_vovnet19b_dw": 224,
        "hrnet_w18_small": 224,
        "resnext50_32x4d": 224,
        "pnasnet5large": 165,
    },
    CONVNEXT: {
        "convnext_atto": 224,
        "convnextv2_atto": 224,
        "inception_next_tiny": 224,
        "mambaout_femto": 224,
        "rdnet_tiny": 224,
        "focalnet_tiny_srf": 224,
    },
    VISION: {
        "vit_tiny_patch16_224": 224,
        "deit3_small_patch16_224": 224,
        "beit_base_patch16_224": 224,
        "eva02_tiny_patch14_224": 224,
        "cait_xxs24_224": 224,
        "xcit_nano_12_p16_224": 224,
        "crossvit_tiny_240": 240,
        "pit_ti_224": 224,
        "tnt_s_patch16_224": 224,
        "convit_tiny": 224,
        "volo_d1_224": 224,
        "flexivit_small": 240,
    },
    WINDOWS: {
        "swin_tiny_patch4_window7_224": 224,
        "swinv2_tiny_window8_256": 256,
        "twins_svt_small": 224,
        "pvt_v2_b0": 224,
        "nest_tiny_jx": 224,
        "gcvit_xxtiny": 224,
        "davit_tiny": 224,
        "hiera_tiny_224": 224,
        "maxvit_tiny_rw_224": 224,
    },
    HYBRID: {
        "coat_lite_tiny": 224,
        "levit_128s": 224,
        "efficientformer_l1": 224,
        "efficientvit_b0": 224,
        "fastvit_t8": 256,
        "edgenext_xx_small": 256,
        "mobilevit_xxs": 256,
        "mobilevitv2_050": 256,
        "coatnet_nano_rw_224": 224,
        "visformer_tiny": 224,
        "tiny_vit_5m_224": 224,
        "botnet26t_256": 256,
        "halonet26t": 256,
        "lambda_resnet26t": 256,
        "caformer_s18": 224,
        "swiftformer_xs": 224,
    },
    MIXER: {
        "mixer_s32_224": 224,
        "resmlp_12_224": 224,
        "gmlp_s16_224": 224,
        "convmixer_768_32": 224,
        "poolformer_s12": 224,
    },
    RECURRENT: {"sequencer2d_s": 224},
}


def _maker(name: str, **options: int) -> Callable[[], nn.Module]:
    def make() -> nn.Module:
        import timm

        module: nn.Module = timm.create_model(name, pretrained=False, **options)
        return module

    return make


NETWORKS = [
    *(
        Network(
            f"timm/{name}",
            family,
            _maker(name),
            (image(1, 3, side, side),),
            needs=("timm", "torchvision"),
        )
        for family, names in _FAMILIES.items()
        for name, side in names.items()
    ),
    Network(
        # As NASNet-A mobile (4 @ 1056), with the six cells a stage that timm has.
        "timm/nasnet_a_6_1056",
        DENSE,
        _maker("nasnetalarge", stem_size=32, num_features=1056),
        (image(1, 3, 224, 224),),
        needs=("timm", "torchvision"),
    ),
]
