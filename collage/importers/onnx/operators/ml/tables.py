"""Operators on tables, which exporters of classical learning write: scaling, linear models.

A table is (rows, features), of any element type; results are float32, but for labels.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from onnx import numpy_helper
from tvm import relax
from tvm.relax import op

from collage.importers.onnx.operators.node import (
    Array,
    Node,
    Refused,
    const,
    fixed_tensor,
    shape_of,
)


def floats(node: Node, index: int = 0) -> relax.Expr:
    """A table in float32.

    Parameters
    ----------
    node : Node
        Whose input it is.
    index : int
        Of the input.

    Returns
    -------
    relax.Expr
        The input itself, where it is of that type.
    """
    x = node.operand(index)
    return x if node.dtype(index) == "float32" else node.emit(op.astype(x, "float32"))


def rows(node: Node, index: int = 0) -> relax.Expr:
    """A table in float32; a single vector is a table of one row.

    Parameters
    ----------
    node, index
        As :func:`floats` takes them.

    Returns
    -------
    relax.Expr
        Of (rows, columns).
    """
    shape = node.shape(index)
    x = floats(node, index)
    return x if len(shape) == 2 else node.emit(op.reshape(x, [1, *shape]))


def vector(node: Node, name: str) -> np.ndarray:
    """An attribute that is a list of numbers.

    Parameters
    ----------
    node : Node
        Whose attribute it is.
    name : str
        The attribute's.

    Returns
    -------
    ndarray
        float32, of one axis; empty without the attribute.
    """
    return np.asarray(node.attributes.get(name, ()), "float32")


def transformed(node: Node, scores: relax.Expr) -> relax.Expr:
    """Scores as the node's ``post_transform`` wants them.

    Parameters
    ----------
    node : Node
        Has the attribute.
    scores : relax.Expr
        One column for each class.

    Returns
    -------
    relax.Expr
        Of the same shape.

    Raises
    ------
    Refused
        When it wants what there is no operator for.
    """
    kind = node.text("post_transform", "NONE")
    functions: dict[str, Callable[[relax.Expr], relax.Expr]] = {
        "NONE": lambda x: x,
        "LOGISTIC": op.sigmoid,
        "SOFTMAX": lambda x: op.nn.softmax(x, axis=-1),
    }
    if kind not in functions:
        raise Refused(f"post_transform {kind}")
    return node.emit(functions[kind](scores))


def labels(node: Node, chosen: relax.Expr, *names: str) -> relax.Expr:
    """The labels of classes by their numbers: (rows,), int64.

    Parameters
    ----------
    node : Node
        Has the labels.
    chosen : relax.Expr
        Numbers of classes, one for each row.
    names : str
        Attributes that may hold labels.

    Returns
    -------
    relax.Expr
        One for each row.

    Raises
    ------
    Refused
        When the labels are strings.
    """
    known = next((node.attributes[name] for name in names if name in node.attributes), None)
    if known is None:
        raise Refused("its labels are strings")
    table = fixed_tensor(np.asarray(known, "int64"))
    return node.emit(op.take(table, node.emit(op.astype(chosen, "int64")), axis=0))


def _scaler(node: Node) -> relax.Expr:
    centred = node.emit(op.subtract(floats(node), fixed_tensor(vector(node, "offset"))))
    return node.emit(op.multiply(centred, fixed_tensor(vector(node, "scale"))))


def _imputer(node: Node) -> relax.Expr:
    whole = "int" in node.dtype(0)
    suffix, dtype = ("int64", "int64") if whole else ("float", "float32")
    filling = np.asarray(node.attributes.get(f"imputed_value_{suffix}s", ()), dtype)
    replaced = node.attributes.get(f"replaced_value_{suffix}", 0)
    if not filling.size:
        raise Refused("it says of other element types what to fill in")
    x = node.operand(0)
    if not whole and np.isnan(replaced):
        missing = node.emit(op.isnan(x))
    else:
        missing = node.emit(op.equal(x, const(replaced, node.dtype(0))))
    value = node.emit(op.astype(fixed_tensor(filling), node.dtype(0)))
    return node.emit(op.where(missing, value, x))


def _normalizer(node: Node) -> relax.Expr:
    x, kind = floats(node), node.text("norm", "MAX")
    axis = len(node.shape(0)) - 1
    if kind == "MAX":
        size = op.max(x, axis, keepdims=True)
    elif kind == "L1":
        size = op.sum(node.emit(op.abs(x)), axis, keepdims=True)
    else:
        size = op.sqrt(node.emit(op.sum(node.emit(op.multiply(x, x)), axis, keepdims=True)))
    size = node.emit(size)
    zero, one = const(0.0, "float32"), const(1.0, "float32")
    return node.emit(op.divide(x, node.emit(op.where(node.emit(op.equal(size, zero)), one, size))))


def _binarizer(node: Node) -> relax.Expr:
    dtype = node.dtype(0)
    above = op.greater(node.operand(0), const(node.number("threshold", 0.0), dtype))
    return node.emit(op.astype(node.emit(above), dtype))


def _feature_vectorizer(node: Node) -> relax.Expr:
    parts = [rows(node, i) for i in range(len(node.inputs))]
    widths = [shape_of(part)[1] for part in parts]
    if node.integers("inputdimensions", widths) != widths:
        raise Refused("it takes another number of columns than there are")
    return node.emit(op.concat(parts, axis=1))


def _extractor(node: Node) -> relax.Expr:
    places = node.emit(op.reshape(node.operand(1), [-1]))
    shape = node.shape(0)
    x = node.operand(0)
    if len(shape) == 1:
        x = node.emit(op.reshape(x, [1, *shape]))
    return node.emit(op.take(x, places, axis=max(len(shape), 2) - 1))


def _linear(node: Node) -> relax.Expr:
    """One score for each row of coefficients."""
    features = node.shape(0)[-1]
    weights = vector(node, "coefficients").reshape(-1, features).T.copy()
    scores = node.emit(op.matmul(rows(node), fixed_tensor(weights)))
    intercepts = vector(node, "intercepts")
    if not intercepts.size:
        return scores
    return node.emit(op.add(scores, fixed_tensor(intercepts)))


def _linear_regressor(node: Node) -> relax.Expr:
    scores, count = _linear(node), node.integer("targets", 1)
    if shape_of(scores)[1] != count:
        raise Refused(f"{shape_of(scores)[1]} rows of coefficients for {count} targets")
    return transformed(node, scores)


def _linear_classifier(node: Node) -> relax.Expr:
    scores, emit = _linear(node), node.emit
    names = "classlabels_ints", "classlabels_int64s"
    count = int(scores.ty.shape.values[1])
    if count > 1:
        place = emit(op.argmax(scores, axis=1))
        return relax.Tuple([labels(node, place, *names), transformed(node, scores)])
    if len(node.attributes.get(names[0], ())) != 2:
        raise Refused("one row of coefficients, and not two labels")
    if node.text("post_transform", "NONE") == "SOFTMAX":
        raise Refused("a softmax of one score")
    above = emit(op.greater(emit(op.squeeze(scores, [1])), const(0.0, "float32")))
    sure = transformed(node, scores)
    both = emit(op.concat([emit(op.subtract(const(1.0, "float32"), sure)), sure], axis=1))
    return relax.Tuple([labels(node, above, *names), both])


def _one_hot(node: Node) -> relax.Expr:
    """A column for each category; what is none of them has zeros."""
    if "cats_int64s" not in node.attributes:
        raise Refused("its categories are strings")
    categories = np.asarray(node.integers("cats_int64s", ()), "int64")
    x = node.emit(op.astype(node.operand(0), "int64"))
    x = node.emit(op.expand_dims(x, len(node.shape(0))))
    same = node.emit(op.equal(x, fixed_tensor(categories)))
    return node.emit(op.astype(same, "float32"))


def _label_encoder(node: Node) -> relax.Expr:
    """Numbers looked up among keys; of keys that are there twice the first counts."""
    keys, values = (_listed(node, role) for role in ("keys", "values"))
    if keys is None or values is None:
        raise Refused("it works on strings; compute it outside of the model")
    if keys.dtype.kind == "f" and np.isnan(keys).any():
        raise Refused("a key that is not a number, which not all versions of it find")
    rest = node.attributes.get("default_tensor")
    if rest is not None:
        rest = numpy_helper.to_array(rest).reshape(-1)[0]
    elif values.dtype.kind == "f":
        rest = node.number("default_float", -0.0)
    else:
        rest = node.integer("default_int64", -1)
    emit = node.emit
    x = emit(op.expand_dims(node.operand(0), len(node.shape(0))))
    same = emit(op.equal(x, fixed_tensor(keys.astype(node.dtype(0)))))
    found = emit(op.astype(same, "int32"))
    value = emit(op.take(fixed_tensor(values), emit(op.argmax(found, -1)), axis=0))
    known = emit(op.astype(emit(op.max(found, -1)), "bool"))
    return emit(op.where(known, value, const(rest, str(values.dtype))))


def _listed(node: Node, role: str) -> Array | None:
    """The numbers that an attribute lists; None for strings."""
    given = node.attributes
    for suffix, dtype in (("int64s", "int64"), ("floats", "float32")):
        if f"{role}_{suffix}" in given:
            return np.asarray(given[f"{role}_{suffix}"], dtype)
    if f"{role}_tensor" not in given:
        return None
    found = numpy_helper.to_array(given[f"{role}_tensor"]).reshape(-1)
    return found if found.dtype.kind in "iuf" else None


TABLES = {
    "ArrayFeatureExtractor": _extractor,
    "Binarizer": _binarizer,
    "FeatureVectorizer": _feature_vectorizer,
    "Imputer": _imputer,
    "LabelEncoder": _label_encoder,
    "LinearClassifier": _linear_classifier,
    "LinearRegressor": _linear_regressor,
    "Normalizer": _normalizer,
    "OneHotEncoder": _one_hot,
    "Scaler": _scaler,
}
