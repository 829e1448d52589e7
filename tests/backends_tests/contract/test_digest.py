"""What of a backend's sources is part of every record's key, and what is not."""

from __future__ import annotations

import importlib
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from collage.backends.contract import Backend
from collage.backends.contract.digest import source_facts as source_facts_module
from collage.backends.contract.digest import sources
from collage.backends.contract.digest.source_facts import facts_kept_in, source_facts
from collage.backends.contract.digest.sources import source_digest
from collage.backends.contract.errors import TargetError
from collage.backends.contract.registry import BUILTIN, get_backend

MAIN = '''"""A backend's module."""
from {helper} import EXTENT


class Mine:
    """Its class."""

    def extent(self):
        """Its extent."""
        return EXTENT
'''
HELPER = '''"""A helper."""
from os import path  # Of the standard library.

EXTENT = 16
"""Wide enough."""
'''

Change = Callable[[str], str]


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder that modules are imported from."""
    before = set(sys.modules)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    for name in set(sys.modules) - before:
        del sys.modules[name]


def package(site: Path, name: str = "package_of_mine") -> Path:
    """A package in which the backend is one level down and its helper is beside it."""
    folder = site / name
    (folder / "inner" / "templates").mkdir(parents=True)
    (folder / "__init__.py").write_text("")
    (folder / "helper.py").write_text(HELPER)
    (folder / "inner" / "__init__.py").write_text("")
    (folder / "inner" / "mine.py").write_text(MAIN.format(helper="..helper"))
    (folder / "inner" / "late.py").write_text("STEP = 1\n")
    (folder / "inner" / "rendered.py").write_text("{% if one %}{{ extent }}")
    (folder / "inner" / "templates" / "kernel.c").write_text("int one;\n")
    return folder


def digest(module: str, version: str = "1") -> str:
    for name in [
        name for name in sys.modules if name.partition(".")[0] == module.partition(".")[0]
    ]:
        del sys.modules[name]
    importlib.invalidate_caches()
    return source_digest(importlib.import_module(module).Mine, version)


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


@pytest.mark.parametrize(
    ("file", "old", "new"),
    [
        ("helper.py", "EXTENT = 16", "EXTENT = 32"),
        ("inner/mine.py", "return EXTENT", "return EXTENT + 1"),
        # Imported by nobody's import statement: by its name, perhaps.
        ("inner/late.py", "STEP = 1", "STEP = 2"),
        ("inner/templates/kernel.c", "int one;", "int two;"),
        ("inner/rendered.py", "{{ extent }}", "{{ step }}"),
        ("__init__.py", "", "import sys; sys.flag = 1"),
    ],
)
def test_a_changed_statement_is_another_backend(site: Path, file: str, old: str, new: str) -> None:
    folder = package(site)
    before = digest("package_of_mine.inner.mine")
    edit(folder / file, old, new)
    assert digest("package_of_mine.inner.mine") != before


@pytest.mark.parametrize(
    ("file", "old", "new"),
    [
        ("helper.py", "A helper.", "What helps."),
        ("helper.py", '"""Wide enough."""', ""),
        ("helper.py", "EXTENT = 16", "# Not less than a line of the cache.\n\nEXTENT = (16)"),
        ("inner/mine.py", '        """Its extent."""\n', ""),
        ("inner/mine.py", '    """Its class."""\n', "    # Its class.\n"),
    ],
)
def test_comments_docstrings_and_layout_do_not_count(
    site: Path, file: str, old: str, new: str
) -> None:
    folder = package(site)
    before = digest("package_of_mine.inner.mine")
    edit(folder / file, old, new)
    assert digest("package_of_mine.inner.mine") == before


def test_where_it_is_installed_does_not_count(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = package(site)
    before = digest("package_of_mine.inner.mine")
    elsewhere = site / "elsewhere"
    shutil.move(folder, elsewhere / folder.name)
    monkeypatch.syspath_prepend(str(elsewhere))
    assert digest("package_of_mine.inner.mine") == before


def test_the_version_of_its_code_and_files_that_it_names_count(site: Path) -> None:
    package(site)
    once = digest("package_of_mine.inner.mine")
    assert digest("package_of_mine.inner.mine", "2") != once
    table = site / "table.bin"
    kind = importlib.import_module("package_of_mine.inner.mine").Mine
    found = set()
    for content in (b"1", b"2"):
        table.write_bytes(content)
        found.add(source_digest(kind, "1", [table]))
    assert len(found | {once}) == 3


def test_a_module_without_a_package_counts_with_its_helpers(site: Path) -> None:
    (site / "mine_alone.py").write_text(MAIN.format(helper="helps_alone"))
    (site / "helps_alone.py").write_text(HELPER)
    (site / "beside.py").write_text("OTHER = 1\n")
    before = digest("mine_alone")
    edit(site / "beside.py", "1", "2")
    assert digest("mine_alone") == before
    edit(site / "helps_alone.py", "16", "32")
    assert digest("mine_alone") != before


def test_a_distribution_s_other_packages_count_and_those_of_others_do_not(site: Path) -> None:
    (site / "first_of_mine.py").write_text(
        MAIN.format(helper="second_of_mine") + "import another_s\n"
    )
    (site / "second_of_mine.py").write_text(HELPER)
    (site / "another_s.py").write_text("OTHER = 1\n")
    for name, modules in (("mine", "first_of_mine\nsecond_of_mine"), ("other", "another_s")):
        info = site / f"{name}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        (info / "top_level.txt").write_text(modules)
    before = digest("first_of_mine")
    edit(site / "another_s.py", "1", "2")
    assert digest("first_of_mine") == before
    edit(site / "second_of_mine.py", "16", "32")
    assert digest("first_of_mine") != before


def test_tools_of_ours_that_it_uses_count_and_others_do_not(
    site: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (site / "uses_ours.py").write_text(
        "from collage.backends.relax.partitions import composites\n"
        "from collage.backends.contract import errors\n"
        "class Mine: pass\n"
    )
    before = digest("uses_ours")
    for module, counts in (
        ("relax.partitions.composites", True),
        ("toolchain.native", True),  # By way of what compiles every library.
        ("compile", True),
        ("link", True),
        ("contract.errors", False),
        ("relax.partitions.walk", False),
        ("openblas.codegen", False),
    ):
        loaded = importlib.import_module(f"collage.backends.{module}")
        copy = site / f"{module}.py"
        copy.write_text(Path(str(loaded.__file__)).read_text() + "\nchanged = True\n")
        with monkeypatch.context() as patch:
            patch.setattr(loaded, "__file__", str(copy))
            assert (digest("uses_ours") != before) is counts, module


def test_a_class_without_a_file_has_no_digest() -> None:
    kind = type("Typed", (), {"__module__": "typed_in_at_a_prompt"})
    with pytest.raises(TargetError, match="Typed stands in no file"):
        source_digest(kind, "1")


@pytest.fixture
def copied(site: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], Path]]:
    """Has the digest of a built-in backend read another file in place of one of its own."""
    with monkeypatch.context() as patch:

        def copy(module: str) -> Path:
            path = Path(str(importlib.import_module(module).__file__))
            other = site / path.name
            shutil.copy(path, other)
            original = Path.read_bytes
            patch.setattr(
                Path,
                "read_bytes",
                lambda self: original(other if self.resolve() == path.resolve() else self),
            )
            return other

        yield copy


@pytest.mark.parametrize("name", ["openblas", "cutlass", "tvm"])
def test_built_in_backends_count_by_their_statements(
    name: str, copied: Callable[[str], Path]
) -> None:
    module = "problem" if name != "tvm" else "cpu.schedules.matmul"
    module = {"cutlass": "families.gemm.problem"}.get(name, module)
    backend = get_backend(name)
    before = backend.source_digest()
    copy = copied(f"collage.backends.{name}.{module}")
    assert backend.source_digest() == before
    copy.write_text("# A comment.\n" + copy.read_text())
    assert backend.source_digest() == before
    copy.write_text(copy.read_text() + "\nchanged = 1\n")
    assert backend.source_digest() != before


def test_what_is_kept_of_sources_is_never_taken_for_an_edited_one(
    site: Path, tmp_path: Path
) -> None:
    """Of the same size, and written in the same instant or at another time."""
    helper = package(site) / "helper.py"
    before = {extent: source_facts(source(extent)) for extent in (16, 32, 64)}
    digests = []
    for extent, seconds in ((16, 0), (32, 0), (64, 60), (16, 120)):
        helper.write_bytes(source(extent))
        os.utime(helper, (seconds, seconds))
        with facts_kept_in(tmp_path / "cache"):
            digests.append(digest("package_of_mine.inner.mine"))
            assert source_facts(source(extent)) == before[extent]
        assert digests[-1] == digest("package_of_mine.inner.mine"), "as without"
    assert len(set(digests)) == 3 and digests[0] == digests[-1]


def source(extent: int) -> bytes:
    return HELPER.replace("16", str(extent)).encode()


def test_sources_are_parsed_once_for_all_processes(
    site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package(site)
    parsed: list[bytes] = []
    facts_of = source_facts_module._facts
    monkeypatch.setattr(
        source_facts_module, "_facts", lambda data: (parsed.append(data), facts_of(data))[1]
    )
    for new in (True, False):
        parsed.clear()
        with facts_kept_in(tmp_path / "cache"):
            digest("package_of_mine.inner.mine")
        assert bool(parsed) is new
    (kept,) = (tmp_path / "cache" / "sources").iterdir()
    for damage in (b"torn", b'{"a": 1}', b""):
        parsed.clear()
        kept.write_bytes(damage)
        with facts_kept_in(tmp_path / "cache"):
            digest("package_of_mine.inner.mine")
        assert parsed, "read anew"


def test_every_backend_has_a_digest_of_its_own() -> None:
    digests = {get_backend(name).source_digest() for name in BUILTIN}
    assert len(digests) == len(BUILTIN)
    assert all(isinstance(get_backend(name), Backend) for name in BUILTIN)


def test_templates_and_every_module_of_a_built_in_backend_count() -> None:
    kind = type(get_backend("cutlass"))
    path = sources._file_of(kind.__module__)
    assert path is not None
    found = sources._Closure(kind.__module__, path).files()
    counted = {file.resolve() for file in found.values()}
    here = {
        file.resolve()
        for file in path.parent.rglob("*")
        if file.is_file() and file.suffix != ".pyc"
    }
    assert here <= counted
