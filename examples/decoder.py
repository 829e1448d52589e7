"""A decoder with its cache: prefill and single step, two functions of one bundle.

python decoder.py [FOLDER]
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import tvm
from numpy.typing import NDArray
from tvm import relax
from tvm.relax import op

import collage

VOCABULARY, WIDTH, HEADS, PROMPT, ROOM = 50, 32, 4, 5, 12
"""The cache has room for so many tokens; a mask says which of them there are."""

Array = NDArray[np.float32]
Weights = Mapping[str, Array]


def random_weights(seed: int = 0) -> dict[str, Array]:
    random = np.random.default_rng(seed)
    shapes = dict.fromkeys(("query", "key", "value", "out"), (WIDTH, WIDTH))
    shapes |= {"embedding": (VOCABULARY, WIDTH), "head": (WIDTH, VOCABULARY)}
    return {
        name: (random.standard_normal(shape) / np.sqrt(WIDTH)).astype("float32")
        for name, shape in shapes.items()
    }


def decoder(weights: Weights) -> tvm.IRModule:
    """``prefill`` takes a whole prompt, ``step`` one token more; both over the same weights."""
    builder = relax.BlockBuilder()
    for name, tokens in {"prefill": PROMPT, "step": 1}.items():
        cache = relax.TensorType((ROOM, WIDTH), "float32")
        params = [
            relax.Var("tokens", relax.TensorType((tokens,), "int64")),
            # 1 where a token of this call goes in the cache: a row for each token.
            relax.Var("place", relax.TensorType((tokens, ROOM), "float32")),
            # 0 for the tokens that one of this call may look at, and very little for the others.
            relax.Var("mask", relax.TensorType((tokens, ROOM), "float32")),
            relax.Var("keys", cache),
            relax.Var("values", cache),
        ]
        with builder.function(name, params):
            with builder.dataflow():
                result = builder.emit_output(relax.Tuple(layer(builder, weights, *params)))
            builder.emit_func_output(result)
    return builder.get()


def layer(
    builder: relax.BlockBuilder,
    weights: Weights,
    tokens: relax.Var,
    place: relax.Var,
    mask: relax.Var,
    keys: relax.Var,
    values: relax.Var,
) -> list[relax.Var]:
    """Scores of the next token, and the caches with this call's tokens in them."""
    emit, const = builder.emit, {name: relax.const(array) for name, array in weights.items()}
    x = emit(op.take(const["embedding"], tokens, axis=0))
    placed = emit(op.permute_dims(place))
    keys = emit(op.add(keys, emit(op.matmul(placed, emit(op.matmul(x, const["key"]))))))
    values = emit(op.add(values, emit(op.matmul(placed, emit(op.matmul(x, const["value"]))))))

    def heads(rows: relax.Var) -> relax.Var:
        count = int(rows.ty.shape.values[0])
        apart = emit(op.reshape(rows, (count, HEADS, WIDTH // HEADS)))
        return emit(op.permute_dims(apart, [1, 0, 2]))

    query = heads(emit(op.matmul(x, const["query"])))
    scores = emit(op.matmul(query, emit(op.permute_dims(heads(keys), [0, 2, 1]))))
    scores = emit(op.multiply(scores, relax.const(np.float32((WIDTH // HEADS) ** -0.5))))
    looks = emit(op.nn.softmax(emit(op.add(scores, mask)), axis=-1))
    seen = emit(op.permute_dims(emit(op.matmul(looks, heads(values))), [1, 0, 2]))
    seen = emit(op.reshape(seen, (int(tokens.ty.shape.values[0]), WIDTH)))
    y = emit(op.add(x, emit(op.matmul(seen, const["out"]))))
    return [emit(op.matmul(y, const["head"])), keys, values]


def where(begin: int, count: int) -> tuple[Array, Array]:
    """``place`` and ``mask`` of so many tokens from a position on."""
    positions = np.arange(begin, begin + count)[:, None]
    slots = np.arange(ROOM)[None, :]
    place = (positions == slots).astype("float32")
    return place, np.where(slots <= positions, 0, -1e9).astype("float32")


def generate(bundle: collage.bundle.Bundle, prompt: NDArray[np.int64], count: int) -> list[int]:
    """The likeliest tokens after a prompt; the caches go from call to call."""
    empty = np.zeros((ROOM, WIDTH), "float32")
    scores, keys, values = bundle["prefill"](prompt, *where(0, len(prompt)), empty, empty)
    found = [int(scores[-1].argmax())]
    for position in range(len(prompt), len(prompt) + count - 1):
        token = np.array(found[-1:])
        scores, keys, values = bundle["step"](token, *where(position, 1), keys, values)
        found.append(int(scores[-1].argmax()))
    return found


def main(folder: Path) -> None:
    mod = decoder(random_weights())
    # The budget is for both functions together.
    result = collage.optimize(
        mod, ["llvm", "onednn"], log=folder / "decoder.jsonl", time_budget_sec=20
    )
    bundle = collage.load(result.export(folder / "decoder.bundle"))
    for function in bundle.functions.values():
        taken = ", ".join(f"{info.name}{list(info.shape)}" for info in function.inputs)
        print(f"{function.entry.name}: {taken}")
    print(generate(bundle, np.arange(PROMPT), ROOM - PROMPT))


if __name__ == "__main__":
    place_of_it = Path(sys.argv[1] if len(sys.argv) > 1 else "out/decoder")
    place_of_it.mkdir(parents=True, exist_ok=True)
    main(place_of_it)
