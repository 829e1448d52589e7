"""Builds arrive whole on another machine; what is no build writes nothing."""

from __future__ import annotations

import io
import random
import tarfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from collage.backends.contract import LibraryRequirement
from collage.backends.contract.errors import MeasurementError, ProtocolError
from collage.backends.link import CompiledLibrary
from collage.cost.engines.shipping import pack, unpack
from collage.cost.processes.staging import stage_to_measure
from collage.cost.workload.arrays import load_arrays, save_arrays

LIMIT = 1 << 20


@pytest.fixture
def here(tmp_path: Path) -> Path:
    return environment(tmp_path / "here")


@pytest.fixture
def there(tmp_path: Path) -> Path:
    return environment(tmp_path / "there")


def environment(root: Path) -> Path:
    """Where a package with a library is installed."""
    library = root / "lib" / "packages" / "fast" / "libfast.so.1"
    library.parent.mkdir(parents=True)
    library.write_bytes(b"fast code")
    return root


def built(folder: Path, environment: Path) -> Path:
    """What a builder leaves: a library, links beside it, test data, names of the rest."""
    fast = environment / "lib" / "packages" / "fast" / "libfast.so.1"
    (folder / "model.so").parent.mkdir(parents=True)
    (folder / "model.so").write_bytes(b"\x7fELF" + bytes(range(256)))
    rng = np.random.default_rng(0)
    save_arrays(folder / "inputs", [rng.standard_normal((3, 5)).astype("float16")])
    need = LibraryRequirement("libfast.so.1", "1.0", "fast", fast)
    stage_to_measure(CompiledLibrary(folder / "model.so", (fast,), (need,)))
    return folder


def test_a_build_arrives_and_its_libraries_are_those_of_the_other_side(
    tmp_path: Path, here: Path, there: Path
) -> None:
    folder = built(tmp_path / "build", here)
    data = pack(folder, LIMIT, here)
    assert b"fast code" not in data, "what is installed on both sides is not sent"
    unpack(data, tmp_path / "arrived", LIMIT, there)
    arrived = tmp_path / "arrived"
    assert (arrived / "model.so").read_bytes() == (folder / "model.so").read_bytes()
    (sent,), (got,) = load_arrays(folder / "inputs"), load_arrays(arrived / "inputs")
    np.testing.assert_array_equal(sent, got)
    assert (arrived / "lib" / "libfast.so.1").resolve().is_relative_to(there.resolve())
    assert str(there) in (arrived / "requirements.json").read_text()
    assert str(here) not in (arrived / "requirements.json").read_text()


def test_links_to_what_is_not_of_a_package_are_followed(tmp_path: Path, here: Path) -> None:
    (tmp_path / "library.so").write_bytes(b"of the system")
    folder = built(tmp_path / "build", here)
    (folder / "lib" / "other.so").symlink_to(tmp_path / "library.so")
    unpack(pack(folder, LIMIT, here), tmp_path / "arrived", LIMIT, here)
    other = tmp_path / "arrived" / "lib" / "other.so"
    assert other.read_bytes() == b"of the system" and not other.is_symlink()


def test_a_library_that_the_other_side_lacks_is_named(
    tmp_path: Path, here: Path, there: Path
) -> None:
    data = pack(built(tmp_path / "build", here), LIMIT, here)
    library = there / "lib" / "packages" / "fast" / "libfast.so.1"
    library.write_bytes(b"another release")
    with pytest.raises(MeasurementError, match=r"libfast\.so\.1' is another version"):
        unpack(data, tmp_path / "arrived", LIMIT, there)
    library.unlink()
    with pytest.raises(MeasurementError, match=r"libfast\.so\.1'.*is not installed"):
        unpack(data, tmp_path / "arrived", LIMIT, there)
    assert not (tmp_path / "arrived").exists()


def test_what_is_too_large_is_neither_sent_nor_taken(tmp_path: Path, here: Path) -> None:
    folder = built(tmp_path / "build", here)
    (folder / "large").write_bytes(bytes(LIMIT))
    with pytest.raises(MeasurementError, match="at most 1 are sent"):
        pack(folder, LIMIT, here)
    data = pack(folder, 4 * LIMIT, here)
    with pytest.raises(ProtocolError):
        unpack(data, tmp_path / "arrived", LIMIT // 2, here)
    assert not (tmp_path / "arrived").exists()


Change = Callable[[tarfile.TarInfo], None]


def _named(name: str) -> Change:
    return lambda member: setattr(member, "name", name)


def _typed(kind: bytes, target: str = "") -> Change:
    def change(member: tarfile.TarInfo) -> None:
        member.type, member.linkname, member.size = kind, target, 0

    return change


@pytest.mark.parametrize(
    "change",
    [
        _named("/etc/model.so"),
        _named("../model.so"),
        _named("inputs/../../model.so"),
        _named("model.so/deeper"),
        _named("renamed.so"),
        _typed(tarfile.SYMTYPE, "/etc/passwd"),
        _typed(tarfile.LNKTYPE, "model.so"),
        _typed(tarfile.FIFOTYPE),
        _typed(tarfile.CHRTYPE),
        _typed(tarfile.DIRTYPE),
    ],
)
def test_an_archive_with_anything_but_its_files_writes_nothing(
    tmp_path: Path, here: Path, change: Change
) -> None:
    honest = pack(built(tmp_path / "build", here), LIMIT, here)
    forged = io.BytesIO()
    with (
        tarfile.open(fileobj=io.BytesIO(honest)) as source,
        tarfile.open(fileobj=forged, mode="w") as copy,
    ):
        for member in source.getmembers():
            content = source.extractfile(member)
            if member.name == "model.so":
                change(member)
            copy.addfile(member, content)
    with pytest.raises(ProtocolError):
        unpack(forged.getvalue(), tmp_path / "in" / "arrived", LIMIT, here)
    assert not (tmp_path / "in").exists() and not (tmp_path / "model.so").exists()


def test_a_link_may_only_lead_to_what_is_installed(tmp_path: Path, here: Path) -> None:
    honest = pack(built(tmp_path / "build", here), LIMIT, here)
    place = b"lib/packages/fast/libfast.so.1"
    for other in (
        b"../../../../../../../../passwd",
        b"/etc/passwd" + bytes(19).replace(b"\0", b"_"),
    ):
        assert len(other) == len(place)
        with pytest.raises((ProtocolError, MeasurementError)):
            unpack(honest.replace(place, other), tmp_path / "arrived", LIMIT, here)
        assert not (tmp_path / "arrived").exists()


def test_what_is_cut_off_or_garbled_is_refused_or_whole(tmp_path: Path, here: Path) -> None:
    """Wherever it happens; what is behind the last file does not count."""
    folder = built(tmp_path / "build", here)
    honest = pack(folder, LIMIT, here)
    rng = random.Random()
    cuts = [rng.randrange(len(honest)) for _ in range(30)] + list(range(0, len(honest), 512))
    for number, cut in enumerate(cuts):
        arrived = tmp_path / str(number)
        try:
            unpack(honest[:cut], arrived, LIMIT, here)
        except ProtocolError:
            assert not arrived.exists()
        else:
            names = sorted(path.relative_to(arrived) for path in arrived.rglob("*"))
            assert names == sorted(path.relative_to(folder) for path in folder.rglob("*"))
    for data in (b"", b"no archive", bytes(2048)):
        with pytest.raises(ProtocolError):
            unpack(data, tmp_path / "nothing", LIMIT, here)


def test_whatever_arrives_is_files_or_a_typed_error(tmp_path: Path, here: Path) -> None:
    """Bytes that were changed at random, headers among them."""
    honest = pack(built(tmp_path / "build", here), LIMIT, here)
    rng = random.Random()
    for number in range(300):
        data = bytearray(honest)
        for _ in range(rng.randrange(1, 8)):
            data[rng.randrange(len(data))] = rng.randrange(256)
        arrived = tmp_path / "in" / str(number) / "arrived"
        try:
            unpack(bytes(data), arrived, LIMIT, here)
        except (ProtocolError, MeasurementError):
            continue
        outside = [path for path in (tmp_path / "in").iterdir() if path.name != str(number)]
        assert all(path.name.isdigit() for path in outside)
