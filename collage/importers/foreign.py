"""Models in formats that are not read here: told by their content, with the way to one that is."""

from __future__ import annotations

from pathlib import Path

from collage.importers.zip_files import names_in

_HEAD_BYTES = 64

_MAGIC: tuple[tuple[int, bytes, str], ...] = (
    (4, b"ORTM", "onnxruntime's own format; give the ONNX file that it was made of"),
    (4, b"TFL3", "TensorFlow Lite's; convert it, for example with tf2onnx --tflite"),
    (0, b"\x89HDF\r\n", "Keras's weights or models; save it as ONNX, for example with tf2onnx"),
    (0, b"GGUF", "llama.cpp's, weights without a program; export the model with torch.export"),
    (0, b"<?xml", "OpenVINO's; give the ONNX file or PyTorch module that it was made of"),
    (0, b"\x80\x02", "Python's pickle; load it in Python, and give the torch.nn.Module"),
)
"""Where the bytes stand, which they are, and what that is."""

_MEMBERS: tuple[tuple[str, str], ...] = (
    ("constants.pkl", "TorchScript's; give the torch.nn.Module, or export that: torch.export.save"),
    ("data.pkl", "torch.save's, which holds weights or pickled objects; load it into its "
     "torch.nn.Module, and give that"),
    ("config.json", "Keras's; save it as ONNX: model.export('model.onnx', format='onnx')"),
)  # fmt: skip
"""Of zip archives: a file in them, and what they are; the first that is there says it."""


def described(path: Path) -> str:
    """What a file or folder is that no importer recognizes, and what to give in its place.

    Parameters
    ----------
    path : Path
        It exists.

    Returns
    -------
    str
        Empty where it is none of the formats that are known by sight.

    Examples
    --------
    >>> path = Path("net.tflite")
    >>> _ = path.write_bytes(bytes(4) + b"TFL3")
    >>> described(path)
    "TensorFlow Lite's; convert it, for example with tf2onnx --tflite"
    """
    if path.is_dir():
        if (path / "saved_model.pb").is_file():
            return "TensorFlow's SavedModel; convert it, for example with tf2onnx --saved-model"
        files = sorted(path.glob("*.onnx"))
        return f"the models in it: {', '.join(map(str, files[:4]))}" if files else ""
    names = names_in(path)
    for member, what in _MEMBERS:
        if member in names:
            return what
    with path.open("rb") as file:
        head = file.read(_HEAD_BYTES)
    if head[8:10] == b'{"' and path.suffix == ".safetensors":
        return "weights without a program; load them into their torch.nn.Module, and give that"
    return next((what for at, magic, what in _MAGIC if head[at:].startswith(magic)), "")
