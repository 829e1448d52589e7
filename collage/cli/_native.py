"""``collage native``: what a C or C++ compiler needs to build a program that runs bundles."""

from __future__ import annotations

from typing import Annotated

import typer

from collage.cli.terminal.options import Debug, example


def add_to(app: typer.Typer) -> None:
    app.command(
        "native",
        epilog=example("g++ run_bundle.cpp -o run_bundle $(collage native --cflags --ldflags)"),
    )(_native)


def _native(
    cflags: Annotated[bool, typer.Option("--cflags", help="The compiler's options.")] = False,
    ldflags: Annotated[bool, typer.Option("--ldflags", help="The linker's options.")] = False,
    includes: Annotated[
        bool, typer.Option("--includes", help="The headers' folders, one a line.")
    ] = False,
    libraries: Annotated[
        bool, typer.Option("--libraries", help="TVM's runtime libraries, one a line.")
    ] = False,
    source: Annotated[
        bool, typer.Option("--source", help="The file that a program in C needs, too.")
    ] = False,
    debug: Debug = False,
) -> None:
    """Say how to compile and link a program that runs bundles without Python."""
    from collage.bundle import native

    if not (cflags or ldflags or includes or libraries or source):
        raise typer.BadParameter("say --cflags, --ldflags, --includes, --libraries or --source")
    flags = [*(native.compile_flags() if cflags else []), *(native.link_flags() if ldflags else [])]
    if flags:
        print(" ".join(flags))
    for path in native.include_dirs() if includes else ():
        print(path)
    for path in native.runtime_libraries() if libraries else ():
        print(path)
    if source:
        print(native.C_SOURCE)
