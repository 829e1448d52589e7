"""Templates of generated sources."""

from __future__ import annotations

from pathlib import Path

import jinja2
import pytest

from collage.backends.toolchain.source_templates import source_templates


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "a.c.jinja").write_text(
        '{% if on %}\nif (a < b && "c") { {{ value | twice }} }\n{% endif %}\n'
    )
    return tmp_path


def test_sources_are_rendered_to_the_letter(folder: Path) -> None:
    """Nothing is escaped as for HTML, and filters are known by their names."""
    template = source_templates(folder, {"twice": lambda x: f"{x}{x}"}).get_template("a.c.jinja")
    assert template.render(on=True, value="<x>") == '\nif (a < b && "c") { <x><x> }\n'


def test_white_space_around_tags_is_kept_as_asked(folder: Path) -> None:
    templates = source_templates(
        folder, {"twice": str}, trim_blocks=True, keep_trailing_newline=True
    )
    text = templates.get_template("a.c.jinja").render(on=True, value="x")
    assert text == 'if (a < b && "c") { x }\n'


def test_a_value_that_is_not_given_is_an_error(folder: Path) -> None:
    template = source_templates(folder, {"twice": str}).get_template("a.c.jinja")
    with pytest.raises(jinja2.UndefinedError, match="'value' is undefined"):
        template.render(on=True)


def test_templates_become_code_once(folder: Path) -> None:
    """A search renders the same template for hundreds of candidates."""
    filters = {"twice": str}
    assert source_templates(folder, filters) is source_templates(folder, dict(filters))
    first = source_templates(folder, filters).get_template("a.c.jinja")
    assert source_templates(folder, filters).get_template("a.c.jinja") is first
    assert source_templates(folder, filters, trim_blocks=True).trim_blocks
