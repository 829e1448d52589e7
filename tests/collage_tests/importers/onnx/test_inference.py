"""Inference of types and shapes survives operators whose inputs it knows nothing of."""

from __future__ import annotations

import numpy as np
import onnx.parser
import pytest

from collage.backends.contract.errors import ModelError
from collage.importers import load_model
from collage.importers.onnx.inference import infer_shapes
from tests.collage_tests.importers.onnx.onnx_models import by_importer, by_onnxruntime

# The type of what an old ensemble gives is not inferred, and labels of it are looked up next, as
# paths through decision trees are.
_PATHS = """<ir_version: 8, opset_import: ["" : 17, "ai.onnx.ml" : 2]>
net (float[5, 2] x) => (int64[5, 1] y) {
    leaf = ai.onnx.ml.TreeEnsembleRegressor <
        n_targets = 1, nodes_treeids = [0, 0, 0], nodes_nodeids = [0, 1, 2],
        nodes_featureids = [0, 0, 0], nodes_values = [0.0, 0.0, 0.0],
        nodes_modes = ["BRANCH_LEQ", "LEAF", "LEAF"], nodes_truenodeids = [1, 0, 0],
        nodes_falsenodeids = [2, 0, 0], target_treeids = [0, 0], target_nodeids = [1, 2],
        target_ids = [0, 0], target_weights = [1.0, 2.0]
    > (x)
    y = ai.onnx.ml.LabelEncoder <keys_floats = [1.0, 2.0], values_int64s = [7, 9]> (leaf)
}"""


def test_labels_of_what_has_no_inferred_type() -> None:
    model = onnx.parser.parse_model(_PATHS)
    given = {"x": np.array([[-1, 0], [1, 0], [-2, 3], [2, 3], [0, 0]], np.float32)}
    (ours,) = by_importer(model, given)
    assert sorted(set(ours.ravel().tolist())) == [7, 9]
    np.testing.assert_array_equal(ours, by_onnxruntime(model, given)[0])


@pytest.mark.parametrize(
    ("domain", "version", "call"),
    [
        ("ai.onnx.ml", 1, """LabelEncoder <classes_strings = ["a", "b"]>"""),
        ("ai.onnx.ml", 2, "LabelEncoder <keys_int64s = [1], values_floats = [2.0]>"),
        ("ai.onnx.ml", 1, """DictVectorizer <string_vocabulary = ["a", "b"]>"""),
        ("", 20, """RegexFullMatch <pattern = "a">"""),
    ],
)
def test_operators_behind_one_that_nobody_knows(domain: str, version: int, call: str) -> None:
    opsets = f'"" : {20 if domain else version}, "own" : 1'
    opsets += f', "{domain}" : {version}' if domain else ""
    model = onnx.parser.parse_model(
        f"""<ir_version: 8, opset_import: [{opsets}]>
        net (float[2] x) => (float[2] y, float[2] z) {{
            found = own.Strange(x)
            said = {domain + "." if domain else ""}{call} (found)
            y = own.Strange(said)
            z = Neg(x)
        }}"""
    )
    before = model.SerializeToString()
    assert "z" in {value.name for value in infer_shapes(model).output}
    assert model.SerializeToString() == before
    with pytest.raises(ModelError, match="Strange"):
        load_model(model)


def test_what_is_hidden_at_first_is_inferred_where_its_input_is_known() -> None:
    model = onnx.parser.parse_model(
        """<ir_version: 8, opset_import: ["" : 17, "ai.onnx.ml" : 2]>
        net (float[3, 2] x) => (int64[A, B] y) {
            t = Transpose(x)
            mid = ai.onnx.ml.LabelEncoder <keys_floats = [1.0], values_int64s = [2]> (t)
            last = ai.onnx.ml.LabelEncoder <keys_int64s = [2], values_int64s = [3]> (mid)
            y = Transpose(last)
        }"""
    )
    found = {
        value.name: [dim.dim_value for dim in value.type.tensor_type.shape.dim]
        for value in infer_shapes(model).value_info
    }
    assert (found["mid"], found["last"]) == ([2, 3], [2, 3])
