"""Models that give a cache back beside their results, as transformers' do unless told otherwise."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import collage
from collage.backends.contract.errors import ModelError
from collage.cost.models import RooflineCostModel
from collage.importers import load_model

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch", exc_type=ImportError)


class Layer:
    """Of a decoder's cache."""

    def __init__(self, keys: torch.Tensor, values: torch.Tensor, **more: Any) -> None:
        self.keys, self.values, self._window = keys, values, torch.tensor(4)
        vars(self).update(more)


class Cache:
    def __init__(self, layers: list[Layer]) -> None:
        self.layers = layers


class EncoderDecoderCache(Cache):
    def __init__(self, own: Cache, cross: Cache) -> None:
        super().__init__([])
        self.self_attention_cache, self.cross_attention_cache = own, cross


class Decoder(torch.nn.Module):
    def __init__(self, *, both: bool = False, **more: Any) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(8, 16)
        self.config = SimpleNamespace(use_cache=True)
        self._both, self._more = both, more

    def forward(self, x: torch.Tensor, use_cache: bool | None = None) -> Any:
        keys, values = self.linear(x).chunk(2, -1)
        result = {"scores": keys * values}
        if not (self.config.use_cache if use_cache is None else use_cache):
            return result
        cache = Cache([Layer(keys, values, **dict.fromkeys(self._more, keys)), Layer(values, keys)])
        return {**result, "cache": EncoderDecoderCache(cache, cache) if self._both else cache}


@pytest.fixture(autouse=True)
def caches(monkeypatch: pytest.MonkeyPatch) -> None:
    """The classes stand where transformers has its own."""
    own = SimpleNamespace(Cache=Cache, EncoderDecoderCache=EncoderDecoderCache)
    monkeypatch.setitem(sys.modules, "transformers.cache_utils", own)


def _run(module: torch.nn.Module, x: torch.Tensor, folder: Any) -> Any:
    result = collage.optimize(module, ["llvm"], example_inputs=(x,), cost_model=RooflineCostModel())
    return collage.load(result.export(folder))(x.numpy())


def test_a_cache_is_a_dict_of_a_tensor_for_each_layer(tmp_path: Any) -> None:
    module, x = Decoder(), torch.randn(3, 8)
    found = _run(module, x, tmp_path / "net.bundle")
    keys, values = module.linear(x).detach().numpy().reshape(3, 2, 8).swapaxes(0, 1)
    np.testing.assert_allclose(found["scores"], keys * values, rtol=1e-5, atol=1e-6)
    for name, wanted in (("key_cache", (keys, values)), ("value_cache", (values, keys))):
        for one, expected in zip(found["cache"][name], wanted, strict=True):
            np.testing.assert_allclose(one, expected, rtol=1e-5, atol=1e-6)
    assert isinstance(module(x)["cache"], Cache) and "forward" not in vars(module)


def test_a_cache_that_comes_whatever_the_configuration_says() -> None:
    """As of adapters with prompts that were learned."""

    class Prompted(Decoder):
        def forward(self, x: torch.Tensor, use_cache: bool | None = None) -> Any:
            return super().forward(x, use_cache=True)

    module = Prompted()
    module.config.use_cache = False
    loaded = load_model(module, example_inputs=(torch.randn(3, 8),))
    names = [output.name for output in loaded.outputs]
    assert "cache.key_cache.0" in names and "forward" not in vars(module)


def test_a_cache_of_an_encoder_and_a_decoder_has_two(tmp_path: Any) -> None:
    found = _run(Decoder(both=True), torch.randn(3, 8), tmp_path / "net.bundle")
    assert set(found["cache"]) == {"self_attention_cache", "cross_attention_cache"}
    assert all(len(one["key_cache"]) == 2 for one in found["cache"].values())


def test_a_cache_of_other_layers_is_left_out_with_a_warning(tmp_path: Any) -> None:
    module = Decoder(states=True)
    with pytest.warns(UserWarning, match="compiled with use_cache=False and gives none"):
        found = _run(module, torch.randn(3, 8), tmp_path / "net.bundle")
    assert set(found) == {"scores"} and module.config.use_cache is True


def test_what_cannot_be_exported_for_another_reason_says_that() -> None:
    class Broken(Decoder):
        def forward(self, x: torch.Tensor, use_cache: bool | None = None) -> Any:
            raise RuntimeError("the lamp is out")

    module = Broken()
    with pytest.raises(ModelError, match="the lamp is out"):
        collage.optimize(module, ["llvm"], example_inputs=(torch.zeros(3, 8),))
    assert module.config.use_cache is True and "forward" not in vars(module)


@pytest.mark.parametrize("kind", ["Llama", "Gemma2", "T5", "Mamba"])
def test_those_of_transformers(kind: str, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    transformers = pytest.importorskip("transformers")
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
    sizes |= {"intermediate_size": 48, "num_key_value_heads": 1, "head_dim": 16, "vocab_size": 50}
    name = f"{kind}ForConditionalGeneration" if kind == "T5" else f"{kind}ForCausalLM"
    own = {
        "T5": {"d_model": 32, "d_kv": 16, "d_ff": 48, "num_layers": 2, "num_heads": 2},
        "Mamba": {"hidden_size": 32, "num_hidden_layers": 2, "state_size": 4},
    }
    configuration = getattr(transformers, f"{kind}Config")(
        **({"vocab_size": 50, **own[kind]} if kind in own else sizes)
    )
    torch.manual_seed(0)
    module = getattr(transformers, name)(configuration).eval()
    inputs = {"input_ids": torch.randint(3, 50, (1, 6))}
    if kind == "T5":
        inputs["decoder_input_ids"] = inputs["input_ids"][:, :4]
    result = collage.optimize(
        module, ["llvm"], example_inputs=inputs, cost_model=RooflineCostModel()
    )
    bundle = collage.load(result.export(tmp_path / "net.bundle"))
    found = bundle(**{key: value.numpy() for key, value in inputs.items()})
    with torch.no_grad():
        wanted = module(**inputs)
    np.testing.assert_allclose(found["logits"], wanted.logits.numpy(), rtol=1e-4, atol=1e-5)
    caches = [value for value in found.values() if isinstance(value, dict)]
    assert len(caches) == (kind != "Mamba")
    if kind in ("Llama", "Gemma2"):
        own_cache = next(v for v in wanted.values() if hasattr(v, "layers"))
        for one, layer in zip(caches[0]["key_cache"], own_cache.layers, strict=True):
            np.testing.assert_allclose(one, layer.keys.numpy(), rtol=1e-4, atol=1e-5)
