"""Templates of generated sources: Jinja2 files in a backend's ``templates`` folder, or shared."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jinja2

_SHARED = Path(__file__).resolve().parent / "templates"


def source_templates(
    folder: Path, filters: Mapping[str, Callable[..., str]] | None = None, **options: Any
) -> jinja2.Environment:
    """The templates of a folder; in them a value that is not given is an error.

    Parameters
    ----------
    folder : Path
        Holds the files; those of ``toolchain/templates`` may be extended.
    filters : mapping, optional
        More filters, by the names that templates call them by.
    **options
        Of ``jinja2.Environment``: how white space around tags is kept.

    Returns
    -------
    jinja2.Environment
        Its templates may include those that backends share. The same one for equal arguments: a
        template becomes Python code once in a process, which takes longer than filling it in.
    """
    return _environment(
        folder, tuple(sorted((filters or {}).items())), tuple(sorted(options.items()))
    )


@functools.cache
def _environment(
    folder: Path,
    filters: tuple[tuple[str, Callable[..., str]], ...],
    options: tuple[tuple[str, Any], ...],
) -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader([folder, _SHARED]),
        undefined=jinja2.StrictUndefined,
        autoescape=False,
        **dict(options),
    )
    environment.filters.update(filters)
    return environment
