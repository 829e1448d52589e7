"""A headless browser for the report's tests."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

import pytest

FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--enable-logging=stderr",
)


@dataclass(frozen=True)
class Visit:
    """What a page left behind: its DOM after the scripts ran, and the console's messages."""

    dom: str
    console: list[str]


def find_chromium() -> str:
    """The browser's path; without one the test is skipped, or fails where ``CI`` is ``true``."""
    for name in ("chromium", "chromium-browser"):
        path = shutil.which(name)
        if path:
            return path
    if os.environ.get("CI") == "true":
        pytest.fail("the report's tests need Chromium: apt-get install chromium")
    pytest.skip("no chromium here: apt-get install chromium")


def dump_dom(page: Path) -> Visit:
    """Open a page and read it back once its scripts have run."""
    done = _chromium("--dump-dom", page.as_uri())
    console = re.findall(r"CONSOLE[^\"]*\"(.*)\", source", done.stderr)
    return Visit(done.stdout, console)


def screenshot(page: Path, image: Path, width: int, height: int, dark: bool = False) -> None:
    """Take a picture of a page's top left part, in pixels."""
    scheme = "--blink-settings=preferredColorScheme=" + ("0" if dark else "1")
    _chromium(f"--screenshot={image}", f"--window-size={width},{height}", scheme, page.as_uri())


def _chromium(*arguments: str) -> subprocess.CompletedProcess[str]:
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        command = [find_chromium(), *FLAGS, f"--user-data-dir={profile}", *arguments]
        return subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
