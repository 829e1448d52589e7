"""Operators written as graphs of simpler ones, where the standard itself does not write them so.

Compress and Unique come down to ``NonZero``, which chooses the rows; some of onnxruntime's
operators to the standard's of today.
"""

from __future__ import annotations

from collections.abc import Container

import onnx
import onnx.parser
from onnx import helper

from collage.backends.contract.errors import CollageError

_HEAD = '<domain: "collage", opset_import: ["" : 17, "com.microsoft" : 1]>\n'

_COMPRESS_FLAT = """Compress (X, condition) => (Y) {
  minus_one = Constant <value_ints = [-1]> ()
  flat = Reshape (X, minus_one)
  found = NonZero (condition)
  places = Reshape (found, minus_one)
  Y = Gather <axis = 0> (flat, places)
}"""

_COMPRESS = """Compress <axis> (X, condition) => (Y) {
  minus_one = Constant <value_ints = [-1]> ()
  found = NonZero (condition)
  places = Reshape (found, minus_one)
  Y = Gather <axis: int = @axis> (X, places)
}"""

_UNIQUE = """Unique (X) => (Y, indices, inverse, counts) {
  minus_one = Constant <value_ints = [-1]> ()
  zero = Constant <value_ints = [0]> ()
  one = Constant <value_ints = [1]> ()
  first_axis = Constant <value_int = 0> ()
  flat = Reshape (X, minus_one)
  count = Shape (flat)
  values, order = TopK <axis = 0, largest = 0, sorted = 1> (flat, count)
  behind = Slice (values, one, count)
  before = Slice (values, zero, minus_one)
  same = Equal (behind, before)
  fresh = Not (same)
  yes = Cast <to = 9> (one)
  first = Concat <axis = 0> (yes, fresh)
  found = NonZero (first)
  places = Reshape (found, minus_one)
  Y = Gather <axis = 0> (values, places)
  indices = Gather <axis = 0> (order, places)
  steps = Cast <to = 7> (first)
  sums = CumSum (steps, first_axis)
  numbers = Sub (sums, one)
  inverse = ScatterElements <axis = 0> (numbers, order, numbers)
  column = Constant <value_ints = [-1, 1]> ()
  each = Reshape (Y, column)
  hits = Equal (each, flat)
  hit = Cast <to = 7> (hits)
  counts = ReduceSum <keepdims = 0> (hit, one)
}"""

_UNIQUE_IN_ORDER = """Unique (X) => (Y, indices, inverse, counts) {
  minus_one = Constant <value_ints = [-1]> ()
  one = Constant <value_ints = [1]> ()
  first_axis = Constant <value_int = 0> ()
  flat = Reshape (X, minus_one)
  column = Constant <value_ints = [-1, 1]> ()
  each = Reshape (flat, column)
  hits = Equal (each, flat)
  hit = Cast <to = 6> (hits)
  firsts = ArgMax <axis = 1, keepdims = 0> (hit)
  count = Shape (flat)
  ones = Expand (one, count)
  counted = CumSum (ones, first_axis)
  numbers = Sub (counted, one)
  first = Equal (firsts, numbers)
  found = NonZero (first)
  indices = Reshape (found, minus_one)
  Y = Gather <axis = 0> (flat, indices)
  steps = Cast <to = 7> (first)
  sums = CumSum (steps, first_axis)
  ranks = Sub (sums, one)
  inverse = Gather <axis = 0> (ranks, firsts)
  mine = Gather <axis = 0> (hits, indices)
  mine_counted = Cast <to = 7> (mine)
  counts = ReduceSum <keepdims = 0> (mine_counted, one)
}"""

_MICROSOFT = {
    "BiasDropout": """BiasDropout (X, bias, residual, ratio, training) => (Y, mask) {
      moved = Add (X, bias)
      dropped, mask = Dropout (moved, ratio, training)
      Y = Add (dropped, residual)
    }""",
    "BiasAdd": """BiasAdd (X, bias, skip) => (Y) {
      moved = Add (X, bias)
      Y = Add (moved, skip)
    }""",
    "BiasSplitGelu": """BiasSplitGelu (X, bias) => (Y) {
      total = Add (X, bias)
      left, right = Split <axis = -1> (total)
      gate = com.microsoft.Gelu (right)
      Y = Mul (left, gate)
    }""",
    "DequantizeLinear": """DequantizeLinear <axis> (x, scale, zero) => (y) {
      y = DequantizeLinear <axis: int = @axis> (x, scale, zero)
    }""",
    "QuantizeLinear": """QuantizeLinear <axis> (x, scale, zero) => (y) {
      y = QuantizeLinear <axis: int = @axis> (x, scale, zero)
    }""",
    "ExpandDims": """ExpandDims (X, axis) => (Y) {
      one = Constant <value_ints = [1]> ()
      wide = Cast <to = 7> (axis)
      axes = Reshape (wide, one)
      Y = Unsqueeze (X, axes)
    }""",
    "GatherND": """GatherND (X, places) => (Y) {
      Y = GatherND (X, places)
    }""",
    "GridSample": """GridSample <align_corners, mode, padding_mode> (X, grid) => (Y) {
      Y = GridSample <align_corners: int = @align_corners, mode: string = @mode,
                      padding_mode: string = @padding_mode> (X, grid)
    }""",
    "Pad": """Pad <mode> (X, pads, value) => (Y) {
      minus_one = Constant <value_ints = [-1]> ()
      flat = Reshape (pads, minus_one)
      Y = Pad <mode: string = @mode> (X, flat, value)
    }""",
    "IsAllFinite": """IsAllFinite (X) => (Y) {
      none = Sub (X, X)
      same = Equal (none, none)
      counted = Cast <to = 6> (same)
      least = ReduceMin <keepdims = 0> (counted)
      Y = Cast <to = 9> (least)
    }""",
    "TorchEmbedding": """TorchEmbedding (X, places) => (Y) {
      Y = Gather <axis = 0> (X, places)
    }""",
    "Unique": """Unique (X) => (Y, inverse, counts) {
      Y, firsts, inverse, counts = Unique <sorted = 0> (X)
    }""",
    "Range": """Range (start, limit, delta) => (Y) {
      Y = Range (start, limit, delta)
    }""",
    "Trilu": """Trilu <upper> (X, k) => (Y) {
      Y = Trilu <upper: int = @upper> (X, k)
    }""",
}


_RANGE_BY_ONES = """Range (start, limit, left_out) => (Y) {
  one = Constant <value_int = 1> ()
  delta = CastLike (one, start)
  Y = Range (start, limit, delta)
}"""


def body_of(node: onnx.NodeProto, known: Container[str] = ()) -> onnx.FunctionProto | None:
    """What a node stands for; None where nothing is written here.

    Parameters
    ----------
    node : onnx.NodeProto
        Of any domain.
    known : container of str
        Names of values that are constants: what they choose is known.

    Returns
    -------
    onnx.FunctionProto or None
        Of ONNX's own operators, for the node's inputs and outputs in their order.

    Examples
    --------
    >>> body = body_of(helper.make_node("Compress", ["x", "kept"], ["y"], axis=1))
    >>> [inner.op_type for inner in body.node]
    ['Constant', 'NonZero', 'Reshape', 'Gather']
    """
    given = {attribute.name: helper.get_attribute_value(attribute) for attribute in node.attribute}
    match node.domain, node.op_type:
        case "" | "ai.onnx", "Compress" if node.input[1] not in known:
            return _parsed(_COMPRESS if "axis" in given else _COMPRESS_FLAT)
        case "" | "ai.onnx", "Unique" if "axis" not in given:
            return _parsed(_UNIQUE if given.get("sorted", 1) else _UNIQUE_IN_ORDER)
        case "com.microsoft", "Range" if len(node.input) == 2 or not node.input[2]:
            return _parsed(_RANGE_BY_ONES)
        case "com.microsoft", name if name in _MICROSOFT:
            return _parsed(_MICROSOFT[name])
    return None


def _parsed(text: str) -> onnx.FunctionProto:
    try:
        return onnx.parser.parse_function(_HEAD + text)
    except onnx.parser.ParseError as err:
        raise CollageError(f"a function of this package cannot be read: {err}") from err
