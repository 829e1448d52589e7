"""The documentation as a site: ``make docs``. Every warning is an error there, broken links too."""

from __future__ import annotations

import importlib
import pkgutil
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util import logging

import collage

DOCS = Path(__file__).parent
ROOT = DOCS.parent

project = "collage"
version = release = collage.__version__
html_title = f"Collage {version}"
html_theme = "furo"
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]

myst_heading_anchors = 4
napoleon_google_docstring = False
# A class's attributes stand in its own docstring; autodoc is not to list them a second time.
napoleon_use_ivar = True
# Each name in that list is looked up as if it were a reference, and several classes have one alike.
suppress_warnings = ["ref.python"]
autodoc_member_order = "bysource"
# The docstrings say the types, in words.
autodoc_typehints = "none"

PAGES = {"index": "README.md", "contributing": "CONTRIBUTING.md", "changelog": "CHANGELOG.md"}
"""Pages that begin with a file of the repository's root."""

REFERENCE = {
    "reference/collage": "collage",
    "reference/search": "collage.search",
    "reference/cost": "collage.cost",
    "reference/backends": "collage.backends",
    "reference/testing": "collage.testing",
}
"""Pages of the reference with the package that each shows, sub-packages and all."""

_log = logging.getLogger(__name__)


def _packages(root: str) -> Iterator[Any]:
    """A package and those below it, but for such as have a page of their own."""
    package = importlib.import_module(root)
    yield package
    for found in pkgutil.iter_modules(package.__path__, f"{root}."):
        if found.ispkg and found.name not in REFERENCE.values():
            yield from _packages(found.name)


def _reference() -> tuple[dict[str, str], dict[int, str]]:
    """What to append to each page, and the documented name of each public object by its id."""
    names: dict[int, str] = {}
    texts = {}
    for page, root in REFERENCE.items():
        blocks = []
        for package in _packages(root):
            fresh = []
            for name in getattr(package, "__all__", ()):
                value = getattr(package, name)
                # Who imports it from elsewhere too finds it where it was exported first.
                if callable(value) and id(value) not in names:
                    names[id(value)] = f"{package.__name__}.{name}"
                    fresh.append(name)
            if fresh:
                blocks.append(
                    f"\n## {package.__name__}\n\n```{{eval-rst}}\n"
                    f".. automodule:: {package.__name__}\n"
                    f"   :members: {', '.join(fresh)}\n   :imported-members:\n```\n"
                )
        texts[page] = "".join(blocks)
    return texts, names


_TEXTS, _NAMES = _reference()


def _read(app: Sphinx, docname: str, source: list[str]) -> None:
    """Complete a page's text, and lead its relative links to where they point in the repository."""
    folder = (DOCS / docname).parent
    if docname in PAGES:
        source[0] = _relinked((ROOT / PAGES[docname]).read_text("utf-8"), ROOT, docname) + source[0]
    else:
        source[0] = _relinked(source[0], folder, docname)
    source[0] += _TEXTS.get(docname, "")


def _relinked(text: str, home: Path, docname: str) -> str:
    """The text with links that hold on the site; folders of the repository lose theirs."""
    pages = {ROOT / file: f"/{page}.md" for page, file in PAGES.items()}

    def relink(match: re.Match[str]) -> str:
        label, target, anchor = match.groups()
        path = (home / target).resolve()
        if not path.exists():
            _log.warning("no such file: %s", target, location=docname)
        if path in pages:
            return f"[{label}]({pages[path]}{anchor})"
        if path.is_dir():
            return label
        if path.is_relative_to(DOCS):
            return f"[{label}](/{path.relative_to(DOCS)}{anchor})"
        return f"{{download}}`{label} </../{path.relative_to(ROOT)}>`"

    # What follows a name is no link: `bundle["prefill"](prompt)`.
    return re.sub(r"(?<!\w)\[([^\]]*)\]\((?!\w+:|#)([^)#]+)(#[^)]*|)\)", relink, text)


def _resolve(app: Sphinx, env: Any, node: Any, inner: nodes.Node) -> nodes.Node | None:
    """Lead a docstring's reference to where its object is documented, or say that it is nowhere."""
    written_out = node.get("refdomain") == "py" and isinstance(inner, nodes.literal)
    target = str(node.get("reftarget", ""))
    if not written_out or not target.startswith("collage"):
        return None
    module, _, name = target.rpartition(".")
    try:
        documented = _NAMES.get(id(getattr(importlib.import_module(module), name)))
    except (ImportError, AttributeError):
        _log.warning("reference to what is not there: %s", target, location=node)
        return None
    if documented is None or documented == target:
        return inner
    domain = env.get_domain("py")
    found: nodes.Node | None = domain.resolve_xref(
        env, node["refdoc"], app.builder, node["reftype"], documented, node, inner
    )
    return found


def setup(app: Sphinx) -> None:
    """Called by Sphinx."""
    app.connect("source-read", _read)
    app.connect("missing-reference", _resolve)
