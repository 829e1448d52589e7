"""Files of exported programs that are no good: nothing in them is ever run."""

from __future__ import annotations

import io
import json
import pickle
import re
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from collage.backends.contract.errors import ModelError
from collage.cost.reference import evaluate
from collage.importers import load_model
from tests.collage_tests.importers.torch.torch_programs import archive, open_archive

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch", exc_type=ImportError)


def rewritten(path: Path, change: Callable[[str, bytes], bytes], extra: dict[str, bytes]) -> Path:
    """The archive with some of its files changed, and others added under its root folder."""
    result = path.with_name("changed.pt2")
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(result, "w") as new:
        for name in old.namelist():
            new.writestr(name, change(name, old.read(name)))
        root = old.namelist()[0].split("/")[0]
        for name, data in extra.items():
            new.writestr(f"{root}/{name}", data)
    return result


class Bomb:
    """Unpickling this creates a file."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[Any, ...]:
        return (Path.touch, (self.mark,))


@pytest.mark.parametrize("place", ["guards_code", "expr_str", "guards_code of a static program"])
@pytest.mark.parametrize(
    "code",
    [
        "__import__('pathlib').Path({mark!r}).touch() or True",
        "open({mark!r}, 'w')",
        "[c for c in ().__class__.__base__.__subclasses__()]",
        "L['x'].size.__func__.__globals__['os'].system('touch {mark}')",
        "Symbol('open({mark!r})')",
        "Add(Symbol('s0'), (lambda: open({mark!r}, 'w'))())",
        "torch.load({mark!r})",
        "1 == 1 or exec('1')",
        "1 #",
    ],
)
def test_expressions_that_do_more_than_count_are_not_evaluated(
    tmp_path: Path, place: str, code: str
) -> None:
    mark = tmp_path / "exploded"
    text = code.format(mark=str(mark))
    is_static = "static" in place

    def change(name: str, data: bytes) -> bytes:
        if not name.endswith("models/model.json"):
            return data
        program = json.loads(data)
        if "guards_code" in place:
            assert "guards_code" in program
            program["guards_code"] = [text]
        else:
            first = re.findall(rb'"expr_str": ("(?:[^"\\\\]|\\\\.)*")', data)[0]
            return data.replace(first, json.dumps(text).encode())
        return json.dumps(program).encode()

    whole = archive(tmp_path) if is_static else open_archive(tmp_path)
    with pytest.raises(ModelError, match="would make code of"):
        load_model(rewritten(whole, change, {}), shapes={} if is_static else {"x": (8, 5)})
    assert not mark.exists()


NAMED = "{name}=__import__('pathlib').Path({mark!r}).touch()"
QUOTED = "{name}', __import__('pathlib').Path({mark!r}).touch(), '"


@pytest.mark.parametrize(
    ("old", "name", "new"),
    [
        ('"{name}"', "image", NAMED),
        ('"{name}"', "stride", NAMED),
        ('"{name}"', "p_conv_weight", NAMED),
        ('"{name}"', "conv.weight", QUOTED),
        ('"{name}"', "conv", QUOTED),
        ('"forward_arg_names": ["{name}"]', "image", NAMED),
    ],
)
def test_names_that_are_code_are_not_made_code(
    tmp_path: Path, old: str, name: str, new: str
) -> None:
    mark = tmp_path / "exploded"
    code = new.format(name=name, mark=str(mark))

    def change(file: str, data: bytes) -> bytes:
        if not file.endswith(".json"):
            return data
        before, text = old.format(name=name), data.decode()
        assert before in text or not file.endswith("models/model.json")
        after = old.replace('"{name}"', json.dumps(code)).replace("{name}", code)
        return text.replace(before, after).encode()

    with pytest.raises(ModelError, match="would make code of"):
        load_model(rewritten(archive(tmp_path), change, {}))
    assert not mark.exists()


def test_keywords_of_a_file_are_names(tmp_path: Path) -> None:
    class Keywords(torch.nn.Module):  # type: ignore[misc,name-defined]
        def forward(self, x: Any, *, batch: Any, last: Any) -> Any:
            return x - batch["a b"] * last

    x, y, z = torch.rand(3, 4)
    path = tmp_path / "keywords.pt2"
    torch.export.save(torch.export.export(Keywords(), (x,), {"batch": {"a b": y}, "last": z}), path)
    found = load_model(path)
    assert [info.name for info in found.inputs] == ["x", "batch_a_b", "last"]
    (mine,) = evaluate(found.mod, [x.numpy(), y.numpy(), z.numpy()])
    np.testing.assert_allclose(mine, (x - y * z).numpy(), rtol=1e-5, atol=1e-6)

    def change(file: str, data: bytes) -> bytes:
        return data.replace(rb"\\\"last\\\"", rb"\\\"last': print(), 'x\\\"")

    with pytest.raises(ModelError, match="would make code of"):
        load_model(rewritten(path, change, {}))


def test_pickled_weights_are_not_read(tmp_path: Path) -> None:
    mark = tmp_path / "exploded"

    def change(name: str, data: bytes) -> bytes:
        if name.endswith("weights_config.json"):
            config = json.loads(data)
            next(iter(config["config"].values()))["use_pickle"] = True
            return json.dumps(config).encode()
        return pickle.dumps(Bomb(mark)) if "data/weights/weight_" in name else data

    with pytest.raises(ModelError, match="pickled tensors"):
        load_model(rewritten(archive(tmp_path), change, {}))
    assert not mark.exists()


def test_pickled_sample_inputs_are_not_read(tmp_path: Path) -> None:
    mark = tmp_path / "exploded"
    buffer = io.BytesIO()
    torch.save(Bomb(mark), buffer)

    def change(name: str, data: bytes) -> bytes:
        return buffer.getvalue() if "/data/sample_inputs/" in name else data

    with pytest.raises(ModelError, match="not plain tensors"):
        load_model(rewritten(archive(tmp_path), change, {}))
    assert not mark.exists()


@pytest.mark.parametrize(
    "name",
    [
        "data/constants/opaque_obj_0",
        "data/constants/custom_obj_0",
        "data/weights/model.pt",
        "data/aotinductor/model/kernel.so",
    ],
)
def test_objects_and_compiled_code_are_not_read(tmp_path: Path, name: str) -> None:
    path = rewritten(archive(tmp_path), lambda _, data: data, {name: b"anything"})
    with pytest.raises(ModelError, match=r"pickled objects|compiled code"):
        load_model(path)
