"""``collage log merge``, ``import``, ``export`` and ``migrate``: logs from one place to another."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from collage.backends.contract.errors import LogError, OutputError
from collage.backends.storage.log_url import LogUrl, is_database_url
from collage.backends.toolchain.artifact_cache import replacing
from collage.cli.terminal import err, out
from collage.cli.terminal.options import Debug, check_log, example

if TYPE_CHECKING:
    from collage.cost.database import LogProblem


def add_to(log: typer.Typer) -> None:
    log.command("merge", epilog=example("collage log merge a.jsonl b.jsonl -o all.jsonl"))(_merge)
    log.command(
        "import", epilog=example("collage log import resnet50.jsonl postgresql://db.lab/collage")
    )(_import)
    log.command("export", epilog=example("collage log export sqlite:///team.db team.jsonl"))(
        _export
    )
    log.command("migrate", epilog=example("collage log migrate sqlite:///team.db"))(_migrate)


DatabaseUrl = Annotated[
    str, typer.Argument(metavar="URL", help="A database, such as sqlite:///team.db.")
]


def _merge(
    logs: Annotated[
        list[str], typer.Argument(metavar="LOG...", help="Logs to put together, files or URLs.")
    ],
    output: Annotated[
        str,
        typer.Option("--output", "-o", metavar="LOG", help="The new log; a database may be there."),
    ],
    debug: Debug = False,
) -> None:
    """Put logs together: every distinct record once, in order; a later one of a key counts."""
    from collage.cost.database import open_database

    place = None if is_database_url(output) else Path(output)
    if place is not None:
        _refuse_to_lose(place, [Path(log) for log in logs if not is_database_url(log)])
    kept: dict[str, None] = {}
    repeated = 0
    source = _Source()
    for log in logs:
        check_log(log, must_exist=True)
        for line in source.lines(log):
            text = line.strip()
            repeated += text in kept
            kept[text] = None
    name = output
    if place is not None:
        _write(place, iter(kept))
    else:
        database = open_database(output)
        database.extend(kept)
        name = database.name
    _say(
        f"{name}: {len(kept)} records from {len(logs)} logs "
        f"({repeated} repeated, {source.skipped} unreadable lines left out)"
    )


def _import(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A log of JSON Lines.")],
    url: DatabaseUrl,
    debug: Debug = False,
) -> None:
    """Add a file's lines to a database, those that are not there; nothing of them is lost.

    An import that was cut off goes on when it is made again.
    """
    from collage.cost.database import open_database

    _expect_url(url)
    check_log(str(file), must_exist=True)
    database, source = open_database(url), _Source()
    added = database.extend(source.lines(str(file)))
    _say(f"{database.name}: {added} lines added, {source.skipped} unreadable lines left out")


def _export(
    url: DatabaseUrl,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The new log of JSON Lines.")],
    debug: Debug = False,
) -> None:
    """Write a database's lines to a file, as they are and in their order."""
    from collage.cost.database import open_database

    _expect_url(url)
    _refuse_to_lose(file, [])
    database = open_database(url, read_only=True)
    _say(f"{file}: {_write(file, database.lines())} lines of {database.name}")


def _migrate(url: DatabaseUrl, debug: Debug = False) -> None:
    """Bring the tables of an earlier release up to date, with all that they hold."""
    _expect_url(url)
    place = LogUrl(url)

    from collage.backends.storage.log_engine import LogEngine
    from collage.cost.database.schema import migrate

    before, after = migrate(LogEngine(place))
    if before == after:
        _say(f"{place}: is up to date (schema {after})")
    else:
        _say(f"{place}: schema {after}, was {before or 'no log'}")


class _Source:
    """Reads logs, says of each line that cannot be read why it is left out, and counts these."""

    def __init__(self) -> None:
        self.skipped = 0

    def lines(self, log: str) -> Iterator[str]:
        from collage.cost.database import open_database
        from collage.cost.database.jsonl import readable_lines

        if is_database_url(log):
            yield from open_database(log, read_only=True).lines()
            return
        problems: list[LogProblem] = []
        for line in readable_lines(Path(log), problems.append):
            self._report(log, problems)
            yield line
        self._report(log, problems)

    def _report(self, log: str, problems: list[LogProblem]) -> None:
        for problem in problems:
            err().print(f"{log} {problem}: left out", markup=False)
        self.skipped += len(problems)
        problems.clear()


def _expect_url(text: str) -> None:
    if not is_database_url(text):
        raise LogError(f"'{text}' is no URL of a database, such as sqlite:///team.db", value=text)


def _refuse_to_lose(output: Path, merged: list[Path]) -> None:
    if output.exists() and not any(output.samefile(file) for file in merged if file.exists()):
        raise LogError(f"'{output}' exists; merge it too, or choose another file", value=output)


def _write(path: Path, lines: Iterator[str]) -> int:
    """Replace a log as a whole: it may be one of those that were read."""
    count = 0
    try:
        with replacing(path) as partial, partial.open("w", encoding="utf-8", newline="\n") as file:
            for line in lines:
                file.write(f"{line}\n")
                count += 1
    except OSError as error:
        raise OutputError(f"cannot write '{path}': {error.strerror}", value=path) from error
    return count


def _say(text: str) -> None:
    out().print(text, highlight=False, markup=False, soft_wrap=True)
