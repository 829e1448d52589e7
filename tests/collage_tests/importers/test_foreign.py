"""Models as other libraries hold them, and files that are in no format of ours."""

from __future__ import annotations

import zipfile
from pathlib import Path

import onnx
import pytest

from benchmarks.networks.tiny import tiny_mobilenet
from collage.backends.contract.errors import ModelError
from collage.importers import load_model
from tests.collage_tests.importers.test_importers import one_node


def test_onnx_models_as_bytes_and_as_onnx_ir_holds_them() -> None:
    net = one_node("Relu", [(2, 3)])
    for source in (net.SerializeToString(), bytearray(net.SerializeToString())):
        assert load_model(source).inputs == load_model(net).inputs
    ir = pytest.importorskip("onnx_ir", reason="it comes with onnxscript")
    assert load_model(ir.from_proto(net)).inputs == load_model(net).inputs


def test_bytes_that_are_no_model_are_refused() -> None:
    for wrong in (b"no model", b""):
        with pytest.raises(ModelError, match=f"these {len(wrong)} bytes are no ONNX model"):
            load_model(wrong)


def test_weights_that_were_not_loaded_are_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "net.onnx"
    onnx.save(tiny_mobilenet(), path, save_as_external_data=True, location="net.weights")
    assert load_model(path).outputs == load_model(tiny_mobilenet()).outputs
    with pytest.raises(ModelError, match=r"in a file, 'net\.weights', that was not loaded"):
        load_model(onnx.load(path, load_external_data=False))


@pytest.mark.parametrize(
    ("head", "message"),
    [
        (b"\0\0\0\0ORTM", "onnxruntime's own format; give the ONNX file"),
        (b"\0\0\0\0TFL3", "TensorFlow Lite's; convert it"),
        (b"\x89HDF\r\n\x1a\n", "Keras's"),
        (b"GGUF\3\0\0\0", "llama.cpp's"),
    ],
)
def test_files_of_other_formats_are_told_by_their_content(
    tmp_path: Path, head: bytes, message: str
) -> None:
    path = tmp_path / "net.bin"
    path.write_bytes(head + bytes(100))
    with pytest.raises(ModelError, match=f"in a format that is not read: {message}"):
        load_model(path)


@pytest.mark.parametrize(
    ("member", "message"),
    [("net/constants.pkl", "TorchScript's"), ("net/data.pkl", "torch.save's")],
)
def test_archives_of_other_formats_are_told_by_what_is_in_them(
    tmp_path: Path, member: str, message: str
) -> None:
    path = tmp_path / "net.pt"
    with zipfile.ZipFile(path, "w") as archive:
        for name in sorted({"net/data.pkl", member}):
            archive.writestr(name, b"")
    with pytest.raises(ModelError, match=message):
        load_model(path)


def test_folders_are_told_what_is_in_them(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"is a folder, not a model file$"):
        load_model(tmp_path)
    (tmp_path / "saved_model.pb").touch()
    with pytest.raises(ModelError, match="TensorFlow's SavedModel; convert it"):
        load_model(tmp_path)


def test_a_damaged_archive_is_said_to_be_one(tmp_path: Path) -> None:
    path = tmp_path / "net.pt"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("net/data.pkl", bytes(1000))
    path.write_bytes(path.read_bytes().replace(b"PK\x01\x02", b"XXXX"))
    with pytest.raises(ModelError, match="damaged zip archive"):
        load_model(path)
