"""What oneDNN runs, as pattern triples.

A region is fused anew as a whole (``fuse.py``), so these patterns say what may stand in a region
and which chains are worth being one candidate; they need not list every chain.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator

import tvm
from tvm import relax
from tvm.relax.dpl import is_const, is_op, wildcard

from collage.backends.contract import Match, PatternTriple, Predicate, Verdict
from collage.backends.onednn.operators.elementwise import BINARY, UNARY
from collage.backends.relax.calls.pooling import PoolPadding
from collage.backends.relax.patterns import (
    Chain,
    all_of,
    bias_per_channel,
    either_order,
    float32_tensors,
    hard_sigmoid,
    hard_swish,
    operator,
    residual_same_shape,
    silu_chain,
    with_activation,
    with_bias,
    with_residual,
)
from collage.backends.relax.recurrent import Recurrence
from collage.backends.relax.recurrent.layer import is_whole_layer, whole_layers
from collage.backends.relax.static_shape import tensor_dtype, tensor_shape
from collage.backends.relax.stepped import NAME as STEPPED

MAX_RANK = 6
"""oneDNN's kernels are made for at most this many dimensions."""

_CHAINS = (
    "sigmoid", "tanh", "leakyrelu", "hardsigmoid", "gelu", "gelu_tanh", "silu", "hardswish",
    "clip", "relu",
)  # fmt: skip
"""Activations that end a fused chain, in rising priority."""


_COMMON = ("tanh", "leakyrelu", "gelu", "silu", "relu")
"""Those of them that end convolutions of every kind."""

_MIDDLES = ("half_pixel", "pytorch_half_pixel")
_SAME_NEAREST = frozenset(
    [("asymmetric", "floor")]
    + [(mode, rounding) for mode in _MIDDLES for rounding in ("round", "round_prefer_floor")]
)

_LAYOUTS = ("NCW", "NCHW", "NCDHW")


def pattern_table() -> list[PatternTriple]:
    """All triples; later ones have a higher priority."""
    return [*_movement(), *_elementwise(), *_simple(), *_chains(), *_stepped(), *_recurrent()]


def multiplies(operator: relax.Expr) -> bool:
    """Whether an operator is a convolution or a product of matrices.

    Parameters
    ----------
    operator : relax.Expr
        Of a region.
    """
    if not isinstance(operator, relax.Call) or not isinstance(operator.op, tvm.ir.Op):
        return False
    name = str(operator.op.name)
    return name == "relax.matmul" or name.startswith("relax.nn.conv")


def _triple(name: str, chain: Chain, *predicates: Predicate) -> PatternTriple:
    check = all_of(float32_tensors, _ranks, *predicates)
    return PatternTriple(f"onednn.{name}", chain.pattern, check, dict(chain.annotations))


def _ranks(match: Match) -> Verdict:
    for name, expr in {"result": match.root, **match.annotated}.items():
        shape = tensor_shape(expr)
        if shape is not None and len(shape) > MAX_RANK:
            return Verdict.no(f"{name} has {len(shape)} dimensions, more than {MAX_RANK}")
    if tensor_shape(match.root) == ():
        return Verdict.no("the result has no dimensions")
    return Verdict.yes()


def _call(match: Match) -> relax.Call:
    call = match.annotated["root"]
    assert isinstance(call, relax.Call)
    return call


def _movement() -> Iterator[PatternTriple]:
    yield _triple("reshape", operator("relax.reshape", 2))
    for name in ("squeeze", "expand_dims", "flatten", "nn.batch_flatten"):
        yield _triple(name.removeprefix("nn."), operator(f"relax.{name}", 1))
    yield _triple("permute_dims", operator("relax.permute_dims", 1))
    yield _triple("concat", operator("relax.concat", 1), _tuple_of_float32)
    yield _triple("split", operator("relax.split", 1))
    x = wildcard()
    # The strides, its last argument, may be absent.
    sliced = is_op("relax.strided_slice")(x, varg_default_wildcard=True)
    yield _triple("strided_slice", Chain(sliced, {"root": sliced, "arg0": x}), _unit_steps)
    yield _triple("pad", operator("relax.nn.pad", 1), _zero_padding)


def _tuple_of_float32(match: Match) -> Verdict:
    ty = match.annotated["arg0"].ty
    for field in getattr(ty, "fields", ()):
        if not isinstance(field, relax.TensorType) or str(field.dtype) != "float32":
            return Verdict.no(f"an operand has type {field}; only float32 is supported")
    return Verdict.yes()


def _unit_steps(match: Match) -> Verdict:
    args = _call(match).args
    steps = [int(step) for step in args[4].fields] if len(args) > 4 else []
    if any(step != 1 for step in steps):
        return Verdict.no(f"steps {steps} are not all 1")
    return Verdict.yes()


def _zero_padding(match: Match) -> Verdict:
    attrs = _call(match).attrs
    if str(attrs.pad_mode) != "constant" or float(attrs.pad_value) != 0.0:
        return Verdict.no(f"padding is {attrs.pad_mode} with {attrs.pad_value}, not zeros")
    if any(int(width) < 0 for width in attrs.pad_width):
        return Verdict.no(f"negative padding {list(attrs.pad_width)}")
    return Verdict.yes()


def _elementwise() -> Iterator[PatternTriple]:
    for name in UNARY:
        yield _triple(name.removeprefix("nn."), operator(f"relax.{name}", 1))
    yield _triple("leakyrelu", operator("relax.nn.leakyrelu", 1))
    yield _triple("clip", operator("relax.clip", 3))
    yield _triple("power", operator("relax.power", 2, constants=[1]), _number_exponent)
    for name in BINARY:
        yield _triple(name, operator(f"relax.{name}", 2), _one_side_broadcast)
    multiplied = operator("relax.multiply", 2, constants=[1])
    shifted = with_bias(multiplied)
    yield _triple("multiply_add", shifted, _one_side_broadcast)
    yield _triple("multiply_add_relu", with_activation(shifted, "relu"), _one_side_broadcast)
    yield from _rounding()
    x = wildcard()
    for name, chain in (
        ("silu_chain", silu_chain(x)),
        ("hardsigmoid", hard_sigmoid(x)),
        ("hardswish", hard_swish(x)),
    ):
        yield _triple(name, Chain(chain, {"x": x}))


def _rounding() -> Iterator[PatternTriple]:
    x, numbers = wildcard(), [is_const() for _ in range(4)]
    bytes_of = is_op("relax.quantize")(x, *numbers[:2])
    back = is_op("relax.dequantize")(bytes_of, *numbers[2:])
    chain = Chain(back, {"x": x})
    named = {f"number{i}": number for i, number in enumerate(numbers)}

    def to_bytes(match: Match) -> Verdict:
        # Scale and zero point are of types of their own: they are looked at here.
        for name in named:
            shape = tensor_shape(match.annotated[name])
            if shape is None or math.prod(shape) != 1:
                return Verdict.no(f"a scale or zero point has shape {shape}, not one for all")
        dtype = tensor_dtype(match.annotated["bytes"])
        if dtype not in ("int8", "uint8"):
            return Verdict.no(f"values are rounded to {dtype}, not to bytes")
        values = [match.annotated[name].value.numpy().item() for name in named]
        if values[:2] != values[2:]:
            return Verdict.no(f"rounded to {values[:2]} (step, zero), read as {values[2:]}")
        return float32_tensors(Match(match.root, {"x": match.annotated["x"]}))

    yield PatternTriple(
        "onednn.round_to_bytes",
        chain.pattern,
        all_of(to_bytes, _ranks),
        {**chain.annotations, "bytes": bytes_of, **named},
    )


def _number_exponent(match: Match) -> Verdict:
    shape = tensor_shape(match.annotated["arg1"])
    if shape is None or math.prod(shape) != 1:
        return Verdict.no(f"the exponent has shape {shape}; only a single number is supported")
    return Verdict.yes()


def _one_side_broadcast(match: Match) -> Verdict:
    call = _call(match)
    result = tensor_shape(call)
    shapes = [tensor_shape(arg) for arg in call.args]
    if result not in shapes:
        return Verdict.no(f"both operands {shapes} are broadcast to {result}")
    return Verdict.yes()


def _simple() -> Iterator[PatternTriple]:
    for rank in (1, 2, 3):
        for name in (f"max_pool{rank}d", f"avg_pool{rank}d"):
            pool = operator(f"relax.nn.{name}", 1)
            yield _triple(name, pool, _channels_first, _within_padding)
        name = f"adaptive_avg_pool{rank}d"
        adaptive = operator(f"relax.nn.{name}", 1)
        yield _triple(name, adaptive, _channels_first, _even_windows)
    for name in ("mean", "sum", "max", "min"):
        yield _triple(name, operator(f"relax.{name}", 1))
    resize = operator("relax.image.resize2d", 2)
    yield _triple("resize2d", resize, _channels_first, _resampled_by_middles)
    for name in ("softmax", "log_softmax"):
        yield _triple(name, operator(f"relax.nn.{name}", 1))
    layer_norm = operator("relax.nn.layer_norm", 3)
    yield _triple("layer_norm", layer_norm, _last_axes)
    yield _triple("lrn", _lrn_chain())
    yield _triple("channel_shuffle", _shuffle_chain())


def _channels_first(match: Match) -> Verdict:
    attrs = _call(match).attrs
    layout = str(getattr(attrs, "data_layout", getattr(attrs, "layout", "")))
    made = str(getattr(attrs, "out_layout", ""))
    if layout not in _LAYOUTS or made not in (layout, ""):
        return Verdict.no(f"layout {layout} to {made}; only {', '.join(_LAYOUTS)} are supported")
    return Verdict.yes()


def _resampled_by_middles(match: Match) -> Verdict:
    """oneDNN maps the middles of points to each other, whatever the operator says."""
    attrs = _call(match).attrs
    given, wanted = tensor_shape(match.annotated["arg0"]), tensor_shape(match.root)
    assert given is not None and wanted is not None
    method, mode = str(attrs.method), str(attrs.coordinate_transformation_mode)
    if method == "linear" and mode in _MIDDLES and 1 not in wanted[2:]:
        return Verdict.yes()
    if method == "nearest_neighbor":
        # Where each point becomes several, all ways to round agree but one that looks ahead.
        whole = all(new % old == 0 for new, old in zip(wanted[2:], given[2:], strict=True))
        rounding = str(attrs.rounding_method)
        if whole and (mode, rounding) in _SAME_NEAREST:
            return Verdict.yes()
    return Verdict.no(f"{method} resizing of {given} to {wanted} by {mode} coordinates")


def _within_padding(match: Match) -> Verdict:
    """oneDNN counts every place of a window that includes padding; with ceil mode some lie beyond
    the padding, and ONNX and TVM do not count those."""
    call = _call(match)
    average = call.op.name.startswith("relax.nn.avg")
    if average and call.attrs.count_include_pad and PoolPadding.of(call).exceeded:
        return Verdict.no("a window reaches beyond the padding that its average includes")
    return Verdict.yes()


def _even_windows(match: Match) -> Verdict:
    given, wanted = tensor_shape(match.annotated["arg0"]), tensor_shape(match.root)
    if given is None or wanted is None or any(g % w for g, w in zip(given, wanted, strict=True)):
        return Verdict.no(f"windows of adaptive pooling {given} to {wanted} are uneven")
    return Verdict.yes()


def _last_axes(match: Match) -> Verdict:
    rank = len(tensor_shape(match.root) or ())
    axes = sorted(int(axis) % rank for axis in _call(match).attrs.axes)
    if axes != list(range(rank - len(axes), rank)):
        return Verdict.no(f"normalized axes {axes} are not the last ones")
    return Verdict.yes()


def _lrn_chain() -> Chain:
    x = wildcard()
    square = is_op("relax.multiply")(x, x) | is_op("relax.square")(x)
    rows = is_op("relax.reshape")(square, wildcard())
    pooled = is_op("relax.reshape")(is_op("relax.nn.avg_pool2d")(rows), wildcard())
    scaled = either_order("relax.multiply", pooled, wildcard())
    shifted = either_order("relax.add", scaled, wildcard())
    chain = is_op("relax.divide")(x, is_op("relax.power")(shifted, wildcard()))
    return Chain(chain, {"x": x})


def _shuffle_chain() -> Chain:
    x = wildcard()
    grouped = is_op("relax.reshape")(x, wildcard())
    chain = is_op("relax.reshape")(is_op("relax.permute_dims")(grouped), wildcard())
    return Chain(chain, {"x": x})


def _chains() -> Iterator[PatternTriple]:
    yield from _all_chains("matmul", "relax.matmul", (), -1, _matmul)
    for rank in (1, 2, 3):
        for suffix, check in (("", _convolution), ("_transpose", _transposed)):
            name, checks = f"conv{rank}d{suffix}", (_channels_first, check)
            if name == "conv2d":
                yield from _all_chains(name, f"relax.nn.{name}", (1,), -3, *checks)
                continue
            # The others are rarer; what stands behind their chains joins them in a region.
            base = functools.partial(operator, f"relax.nn.{name}", 2, (1,))
            bias = bias_per_channel(-rank - 1)
            yield _triple(name, base(), *checks)
            yield _triple(f"{name}_bias", with_bias(base()), *checks, bias)
            for activation in _COMMON:
                yield _triple(f"{name}_{activation}", with_activation(base(), activation), *checks)
                chain = with_activation(with_bias(base()), activation)
                yield _triple(f"{name}_bias_{activation}", chain, *checks, bias)


def _all_chains(
    name: str, operation: str, constants: tuple[int, ...], axis: int, *predicates: Predicate
) -> Iterator[PatternTriple]:
    bias = bias_per_channel(axis)
    base = functools.partial(operator, operation, 2, constants)
    yield _triple(name, base(), *predicates)
    for activation in _CHAINS:
        yield _triple(f"{name}_{activation}", with_activation(base(), activation), *predicates)
    biased = [*predicates, bias]
    yield _triple(f"{name}_add", with_residual(base()), *predicates, residual_same_shape)
    yield _triple(f"{name}_bias", with_bias(base()), *biased)
    for activation in _CHAINS:
        chain = with_activation(with_bias(base()), activation)
        yield _triple(f"{name}_bias_{activation}", chain, *biased)
    added = [*biased, residual_same_shape]
    yield _triple(f"{name}_bias_add", with_residual(with_bias(base())), *added)
    for activation in ("clip", "relu"):
        chain = with_activation(with_residual(with_bias(base())), activation)
        yield _triple(f"{name}_bias_add_{activation}", chain, *added)


def _matmul(match: Match) -> Verdict:
    call = _call(match)
    shapes = [tensor_shape(arg) for arg in call.args]
    if any(shape is None or len(shape) < 2 for shape in shapes):
        return Verdict.no(f"operands of shapes {shapes}; at least two dimensions are needed")
    return Verdict.yes()


def _convolution(match: Match) -> Verdict:
    return _weights_and_padding(match, ("OIW", "OIHW", "OIDHW"))


def _transposed(match: Match) -> Verdict:
    return _weights_and_padding(match, ("IOW", "IOHW", "IODHW"))


def _weights_and_padding(match: Match, layouts: tuple[str, ...]) -> Verdict:
    attrs = _call(match).attrs
    if str(attrs.kernel_layout) not in layouts:
        return Verdict.no(f"weights are laid out {attrs.kernel_layout}, not {' or '.join(layouts)}")
    if any(int(width) < 0 for width in attrs.padding):
        return Verdict.no(f"negative padding {list(attrs.padding)}")
    return Verdict.yes()


def _stepped() -> Iterator[PatternTriple]:
    for centred in (False, True):
        name = "shifted_stepped_matmul" if centred else "stepped_matmul"
        base = functools.partial(operator, STEPPED, 3 + centred, range(1, 3 + centred))
        yield _stepped_triple(name, base())
        yield _stepped_triple(f"{name}_add", with_residual(base()), residual_same_shape)
        bias = bias_per_channel(-1)
        yield _stepped_triple(f"{name}_bias", with_bias(base()), bias)
        for activation in _COMMON:
            chain = with_activation(with_bias(base()), activation)
            yield _stepped_triple(f"{name}_bias_{activation}", chain, bias)
        added = with_residual(with_bias(base()))
        yield _stepped_triple(f"{name}_bias_add", added, bias, residual_same_shape)


def _stepped_triple(name: str, chain: Chain, *predicates: Predicate) -> PatternTriple:
    # The weights are bytes, which is the operator's own business.
    annotations = {key: part for key, part in chain.annotations.items() if key != "arg1"}
    return _triple(name, Chain(chain.pattern, annotations), *predicates)


def _recurrent() -> Iterator[PatternTriple]:
    for name, chain in whole_layers():
        yield _triple(f"recurrent{name}", chain, is_whole_layer, _sequences_to_the_end)


def _sequences_to_the_end(match: Match) -> Verdict:
    if Recurrence.of(_call(match)).has_lengths:
        return Verdict.no("sequences end early, which oneDNN does not know")
    return Verdict.yes()
