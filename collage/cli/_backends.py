"""``collage backends``: what can be used here, and how to get what cannot."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import typer

from collage.cli.terminal import out, print_json
from collage.cli.terminal.options import Debug, Json, example

if TYPE_CHECKING:
    from collage.backends.contract import Backend


def add_to(app: typer.Typer) -> None:
    app.command("backends", epilog=example("collage backends"))(_backends)


def _backends(json: Json = False, debug: Debug = False) -> None:
    """List the backends: usable or why not, library versions, and target attributes."""
    from collage.backends.contract.registry import backend_names, get_backend

    rows = [_describe(get_backend(name)) for name in backend_names()]
    if json:
        print_json({"backends": rows})
        return
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for column in ("backend", "device", "usable", "versions, or what is missing", "attributes"):
        table.add_column(column)
    for row in rows:
        if row["usable"]:
            found = ", ".join(f"{k} {v}" for k, v in row["versions"].items())
        else:
            found = "\n".join(part for part in (row["reason"], row["remedy"]) if part)
        attributes = "\n".join(
            f"{a['name']}: {a['type']} = {a['default']!r}" for a in row["attributes"]
        )
        table.add_row(
            Text(row["name"], style="bold"),
            row["device"],
            Text("yes", style="green") if row["usable"] else Text("no", style="red"),
            Text(found),
            Text(attributes or "none"),
        )
    out().print(table)


def _describe(backend: Backend) -> dict[str, Any]:
    available = backend.probe()
    return {
        "name": backend.name,
        "device": backend.device,
        "granularity": backend.granularity.value,
        "usable": available.usable,
        "versions": dict(available.versions),
        "reason": available.reason,
        "remedy": available.remedy,
        "attributes": [
            {"name": field.name, "type": str(field.type), "default": _default(field)}
            for field in dataclasses.fields(backend.options_type)
        ],
    }


def _default(field: dataclasses.Field[Any]) -> Any:
    if field.default is not dataclasses.MISSING:
        return field.default
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return None
