"""``collage workers``: who could measure, and why not."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from collage.cli.terminal import out, print_json
from collage.cli.terminal.options import Debug, Json, example

if TYPE_CHECKING:
    from collage.cost.device import DevicePolicy
    from collage.cost.measure.engine import WorkerInfo

EVERYBODY = "everybody"


def add_to(app: typer.Typer) -> None:
    app.command(
        "workers",
        epilog=example(
            "collage workers local",
            "collage workers ray://head:10001",
            "collage workers 'rpc://tracker:9190?key=h100' --target cuda",
        ),
    )(_workers)


def _workers(
    url: Annotated[
        str,
        typer.Argument(
            metavar="URL", help="As 'collage optimize --workers' takes it: local, ray, rpc://…"
        ),
    ] = "local",
    target: Annotated[
        str | None,
        typer.Option(
            "--target",
            "-t",
            metavar="llvm|cuda",
            help="Only devices that such a target is for; by default those of every kind.",
        ),
    ] = None,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """List who could measure: devices, versions, load, and why one cannot be used.

    Nothing is measured or left running.
    """
    from collage.cost.engines import engine_of

    engine = engine_of(url)
    found = [(policy, info) for policy in _policies(target) for info in engine.inspect(policy)]
    if json:
        print_json({"workers": [_as_json(policy, info) for policy, info in found]})
        return
    _print(found)


def _policies(target: str | None) -> Sequence[DevicePolicy]:
    from collage.backends.contract.errors import TargetError
    from collage.cost.device import POLICIES

    if target is None:
        return POLICIES
    chosen = [policy for policy in POLICIES if policy.kind.target_kind == target]
    if not chosen:
        known = ", ".join(policy.kind.target_kind for policy in POLICIES)
        raise TargetError(
            f"nothing is measured for target '{target}'; known targets: {known}", value=target
        )
    return chosen


def _as_json(policy: DevicePolicy, info: WorkerInfo) -> dict[str, Any]:
    from dataclasses import asdict

    return {**asdict(info), "kind": policy.kind.name, "usable": info.usable}


def _print(found: Sequence[tuple[DevicePolicy, WorkerInfo]]) -> None:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    console = out()
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for column in ("worker", "address", "device", "builds", "load", "usable"):
        table.add_column(column, justify="right" if column in ("builds", "load") else "left")
    for policy, info in found:
        device = "" if info.device is None else _device_text(policy, info)
        table.add_row(
            Text(info.name, style="bold"),
            info.address,
            Text(device),
            str(info.builds) if info.builds else "",
            "" if info.load is None else f"{info.load:.2f}",
            Text("yes", style="green") if info.usable else Text(f"no: {info.reason}", style="red"),
        )
    console.print(table)
    infos = [info for _, info in found]
    for whose, versions in versions_of(infos):
        listed = ", ".join(f"{name} {version}" for name, version in versions.items())
        console.print(f"{whose}: {listed}", highlight=False, markup=False, soft_wrap=True)


def _device_text(policy: DevicePolicy, info: WorkerInfo) -> str:
    assert info.device is not None
    key = policy.device_key(info.device)
    return key if info.device.driver == "none" else f"{key}\ndriver {info.device.driver}"


def versions_of(infos: Sequence[WorkerInfo]) -> list[tuple[str, dict[str, str]]]:
    """What is installed where, what all have in common once.

    Parameters
    ----------
    infos : sequence of WorkerInfo
        Everybody.

    Returns
    -------
    list of (str, dict of str to str)
        Whose they are, and the versions by name; who has nothing of their own is not named.
    """
    known = {info.name: dict(info.versions) for info in infos if info.versions}
    if not known:
        return []
    first, *others = known.values()
    common = {
        name: version
        for name, version in first.items()
        if all(other.get(name) == version for other in others)
    }
    rows = [(EVERYBODY if len(known) > 1 else next(iter(known)), common)] if common else []
    for name, versions in known.items():
        own = {key: version for key, version in versions.items() if key not in common}
        if own:
            rows.append((name, own))
    return rows
