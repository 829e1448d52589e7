"""MobileNetV2 and BERT-base, built from a ``transformers`` configuration and exported by torch.

Nothing is downloaded: weights are random. Needs the extra ``[bench]``. Exporting takes seconds and
imports torch, so :func:`build` writes a file once and the benchmark calls it in a process of its
own (``python -m benchmarks.networks.exported NAME FILE``).
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx
from onnx import ModelProto

from benchmarks.networks.models import refill_weights
from collage.backends.toolchain.artifact_cache import make_once


def mobilenet_v2(seed: int = 0, image: int = 224, cache: Path | None = None) -> ModelProto:
    """MobileNetV2 1.0 (Sandler et al. 2018), batch norms folded by the exporter.

    Parameters
    ----------
    seed : int
        Of the weights.
    image : int
        Height and width of the input.
    cache : Path, optional
        A folder where the built model is kept.

    Returns
    -------
    onnx.ModelProto
        Input ``image`` float32 (1, 3, image, image), output logits float32 (1, 1000).

    Raises
    ------
    ModuleNotFoundError
        Without torch, transformers and onnxscript.
    """

    def make() -> ModelProto:
        import torch
        from transformers import MobileNetV2Config, MobileNetV2ForImageClassification

        class Logits(torch.nn.Module):
            def __init__(self) -> None:
                super().__init__()
                config = MobileNetV2Config(num_labels=1000, tf_padding=False)
                self.network = MobileNetV2ForImageClassification(config)

            def forward(self, image: Any) -> Any:
                return self.network(pixel_values=image).logits

        model = _export(Logits().eval(), {"image": torch.zeros(1, 3, image, image)})
        refill_weights(model, seed)  # the configuration's own deviation lets activations vanish
        return model

    return _cached(cache, f"mobilenet_v2-{image}-{seed}", make)


def bert_base(seq: int = 128, seed: int = 0, cache: Path | None = None) -> ModelProto:
    """BERT-base's encoder (Devlin et al. 2019): 12 layers, width 768, 12 heads.

    Parameters
    ----------
    seq : int
        Tokens.
    seed : int
        Of the weights.
    cache : Path, optional
        A folder where the built model is kept.

    Returns
    -------
    onnx.ModelProto
        Inputs ``input_ids``, ``attention_mask``, ``token_type_ids`` int64 (1, seq), output
        float32 (1, seq, 768): the last hidden state.

    Raises
    ------
    ModuleNotFoundError
        Without torch, transformers and onnxscript.
    """

    def make() -> ModelProto:
        import torch
        from transformers import BertConfig, BertModel

        torch.manual_seed(seed)

        class LastHidden(torch.nn.Module):
            def __init__(self) -> None:
                super().__init__()
                config = BertConfig(attn_implementation="eager")
                self.network = BertModel(config, add_pooling_layer=False)

            def forward(self, input_ids: Any, attention_mask: Any, token_type_ids: Any) -> Any:
                # The additive mask of the original BERT: given as four dimensions it is used as
                # it is, where the library's own would come out as a gather per position.
                bias = (1.0 - attention_mask[:, None, None, :].to(torch.float32)) * -10000.0
                answer = self.network(
                    input_ids=input_ids, attention_mask=bias, token_type_ids=token_type_ids
                )
                return answer.last_hidden_state

        network = LastHidden().eval()
        with torch.no_grad():  # all biases start equal, which would hide any mix-up of them
            for name, weight in network.named_parameters():
                if weight.dim() == 1:
                    mean = 1.0 if name.endswith("LayerNorm.weight") else 0.0
                    weight.normal_(mean, 0.1)
        tokens = torch.zeros(1, seq, dtype=torch.int64)
        names = ("input_ids", "attention_mask", "token_type_ids")
        return _export(network, {name: tokens.clone() for name in names})

    return _cached(cache, f"bert_base-{seq}-{seed}", make)


def _export(network: Any, inputs: dict[str, Any]) -> ModelProto:
    """ONNX of a torch module at these example inputs, all shapes fixed."""
    import torch

    program = torch.onnx.export(
        network,
        tuple(inputs.values()),
        dynamo=True,
        input_names=list(inputs),
        output_names=["output"],
        verbose=False,
    )
    model: ModelProto = program.model_proto
    return model


def _cached(cache: Path | None, name: str, make: Callable[[], ModelProto]) -> ModelProto:
    if cache is None:
        return make()
    return onnx.load(make_once(cache / f"{name}.onnx", lambda path: onnx.save(make(), path)))


BUILDERS: dict[str, Callable[..., ModelProto]] = {
    "mobilenet_v2": mobilenet_v2,
    "bert_base": bert_base,
}

if __name__ == "__main__":
    onnx.save(BUILDERS[sys.argv[1]](), Path(sys.argv[2]))
