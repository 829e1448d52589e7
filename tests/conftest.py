"""What all tests share."""

from __future__ import annotations

import gc
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from collage.backends.toolchain.children.fork_server import fork_servers
from tests import marked_files
from tests import postgres as server

# A crowded machine makes any example slow now and then, which says nothing of the code. Else as it
# was: under continuous integration Hypothesis draws the same examples each time.
settings.register_profile("collage", parent=settings.default, deadline=None)
settings.load_profile("collage")

# Shells start what runs in the background with Ctrl-C ignored, and Python leaves it at that.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[object]:
    """Modules and thousands of tests stay: garbage collections need not look through them."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.enable()


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Files without a test of what a run asks for need not be imported."""
    mark = marked_files.asked_for(config.getoption("markexpr"))
    if not mark or collection_path.is_dir() or collection_path.suffix != ".py":
        return None
    return None if marked_files.names(collection_path, mark) else True


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Before any of them are deselected."""
    marked_files.require_named(items)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> object:
    """Files are run as a whole, and those that share what is dear by one process."""
    if config.getvalue("dist") != "loadfile":
        return None
    from tests.sharing import FilesThatShare

    return FilesThatShare(config, log)


@pytest.fixture(scope="session", autouse=True)
def kept_fork_servers() -> Iterator[None]:
    """One file's workers are forked by the server of those before it."""
    with fork_servers().kept():
        yield


@pytest.fixture(scope="module")
def postgres() -> Iterator[server.Server]:
    """One server for a file's tests of shared logs, gone after them: other files' tests look which
    processes are left."""
    if reason := server.missing():
        pytest.skip(reason)
    with server.running() as started:
        yield started
