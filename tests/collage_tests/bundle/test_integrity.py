"""A bundle is found to be whole before anything of it is loaded."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path

import numpy as np
import pytest

import collage
from collage.backends.contract.errors import BundleError


@pytest.fixture
def copy(compiled_bundle: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(compiled_bundle, tmp_path / "copy"))


def _files(bundle: Path) -> list[dict[str, object]]:
    files: list[dict[str, object]] = json.loads((bundle / "manifest.json").read_text())["files"]
    return files


def test_the_manifest_has_the_hashes_of_what_is_loaded(copy: Path) -> None:
    named = {str(one["file"]): one for one in _files(copy)}
    libraries = {f"lib/{path.name}" for path in (copy / "lib").iterdir()}
    assert set(named) == {"model.so"} | libraries
    for name, one in named.items():
        content = (copy / name).read_bytes()
        assert one["bytes"] == len(content)
        assert one["sha256"] == hashlib.sha256(content).hexdigest()


def test_a_flipped_bit_anywhere_names_the_file(copy: Path) -> None:
    for one in _files(copy):
        path = copy / str(one["file"])
        content = bytearray(path.read_bytes())
        where = int(np.random.default_rng().integers(len(content)))
        content[where] ^= 1
        path.write_bytes(content)
        with pytest.raises(BundleError, match=f"{one['file']} is not what was written") as found:
            collage.load(copy)
        assert found.value.value == one["file"]
        content[where] ^= 1
        path.write_bytes(content)
    collage.load(copy)


def test_what_was_cut_off_or_is_missing_is_found_without_hashing(copy: Path) -> None:
    library = copy / "model.so"
    content = library.read_bytes()
    library.write_bytes(content[:-1])
    with pytest.raises(BundleError, match=f"model.so has {len(content) - 1} bytes, not"):
        collage.load(copy, verify=False)
    library.write_bytes(content)
    shipped = next((copy / "lib").iterdir())
    shipped.unlink()
    with pytest.raises(BundleError, match=f"lacks lib/{shipped.name}: copy it whole"):
        collage.load(copy, verify=False)


def test_a_bundle_of_an_earlier_release_still_loads(copy: Path, compiled_bundle: Path) -> None:
    path = copy / "manifest.json"
    manifest = json.loads(path.read_text())
    for field in ("files", "borrowed_outputs", "functions"):
        del manifest[field]
    manifest["schema_version"] = 1
    path.write_text(json.dumps(manifest))
    image = np.random.default_rng().standard_normal((1, 3, 32, 32)).astype("float32")
    want = collage.load(compiled_bundle)(image)
    np.testing.assert_array_equal(collage.load(copy)(image), want)
