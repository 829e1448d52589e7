"""The tables, as Markdown."""

from __future__ import annotations

from pathlib import Path

from benchmarks.cells import cell
from benchmarks.zoo.cells import by_family, commits, seconds
from benchmarks.zoo.families import NETWORKS
from benchmarks.zoo.importing import AS_EXACT, RIGHT, is_right
from benchmarks.zoo.results import Results, Row
from benchmarks.zoo.table_run import is_exact, run_page, run_verdict


def write(results: Results, out: Path) -> None:
    """``zoo_import.md`` and so on, of the stages that were run."""
    for stage, page in (("import", import_page), ("compile", compile_page)):
        if results.of(stage):
            text = page(results.of(stage))
            (out / f"zoo_{stage}.md").write_text(text + "\n", encoding="utf-8")
    for device in ("cpu", "cuda"):
        rows = [row for row in results.of("run") if row["variant"].split()[0] == device]
        if rows:
            (out / f"zoo_{device}.md").write_text(run_page(rows) + "\n", encoding="utf-8")


def line(row: Row) -> str:
    """A row in one line, for the terminal."""
    return f"{row['network']:44} {row['variant']:15} {row['wall_sec']:6.1f} s  {verdict(row)}"


def verdict(row: Row) -> str:
    """What became of it, in words."""
    if "skipped" in row:
        return str(row["skipped"])
    if "failure" in row:
        return f"{row['failed_in']}: {row['failure']}" if "failed_in" in row else row["failure"]
    if "unchecked" in row:
        return f"imported; not evaluated: {row['unchecked']}"
    if "difference" in row:
        figures = f"{row['difference']:.1e} where eager has {row['eager']:.1e}"
        return f"right ({figures})" if is_right(row) else f"WRONG ({figures})"
    if "rms" in row:
        return run_verdict(row)
    return "linked"


def is_good(row: Row) -> bool:
    """Whether nothing is known against it."""
    if "failure" in row or "skipped" in row:
        return False
    if "rms" in row:
        return is_exact(row)
    return "difference" not in row or is_right(row)


def summary(results: Results, stage: str) -> str:
    """How many of them passed."""
    rows = [row for row in results.of(stage) if "skipped" not in row]
    good = sum(is_good(row) for row in rows)
    return f"{stage}: {good} of {len(rows)}"


def import_page(rows: list[Row]) -> str:
    """Imported or what is missing; right or how wrong."""
    rows = [row for row in rows if row["network"] in NETWORKS]
    done = [row for row in rows if "skipped" not in row]
    right = [row for row in done if "difference" in row and is_right(row)]
    lines = [
        "# The zoo, imported",
        "",
        f"{sum('failure' not in row for row in done)} of {len(done)} imported; "
        f"{len(right)} of these were evaluated in numpy and are right: root-mean-square error "
        f"against float64 below {RIGHT:g}, or {AS_EXACT:g} times that of eager PyTorch in float32. "
        f"Commits: {commits(rows)}.",
        "",
        "| family | network | from | parameters | operators | export s | import s | result |",
        "| --- | --- | --- | ---: | ---: | ---: | ---: | --- |",
    ]
    for family, members in by_family(rows):
        for row in members:
            count = sum(row["operators"].values()) if "operators" in row else ""
            millions = f"{row['parameters'] / 1e6:.2f} M" if "parameters" in row else ""
            lines.append(
                f"| {family} | {row['network']} | {row['variant']} | {millions} | {count} "
                f"| {seconds(row, 'export_sec')} | {seconds(row, 'import_sec')} "
                f"| {cell(verdict(row))} |"
            )
    return "\n".join(lines)


def compile_page(rows: list[Row]) -> str:
    """Linked, with which partitions, in how long."""
    rows = [row for row in rows if row["network"] in NETWORKS]
    done = [row for row in rows if "skipped" not in row]
    lines = [
        "# The zoo, compiled on estimated costs",
        "",
        f"{sum('failure' not in row for row in done)} of {len(done)} searched, linked and "
        f"exported; nothing was run. Commits: {commits(rows)}.",
        "",
        "| family | network | for | s | partitions | result |",
        "| --- | --- | --- | ---: | --- | --- |",
    ]
    for family, members in by_family(rows):
        for row in members:
            parts = ", ".join(f"{n} {k}" for k, n in sorted(row.get("partitions", {}).items()))
            lines.append(
                f"| {family} | {row['network']} | {row['variant']} | {seconds(row, 'seconds')} "
                f"| {parts} | {cell(verdict(row))} |"
            )
    return "\n".join(lines)
