"""The only place that reads environment variables."""

from __future__ import annotations

import os
from collections.abc import MutableMapping
from dataclasses import dataclass
from pathlib import Path

from collage.backends.contract import BuildContext
from collage.backends.contract.errors import UserError

_SPINS = 12_000
"""Longer than from the end of a call to the first kernel of the next. With 8,000 and less threads
sleep in between, and waking them takes 0.06 ms of each call; beside others more only does harm."""


@dataclass(frozen=True)
class Config:
    """Settings that come from the environment.

    Attributes
    ----------
    cache_dir : Path
        Native objects compiled once per content (``COLLAGE_CACHE_DIR``; by default
        ``$XDG_CACHE_HOME/collage`` or ``~/.cache/collage``).
    num_threads : int
        Default number of threads (``COLLAGE_NUM_THREADS``; 0 is all cores).
    cxx : str
        C++ compiler driver (``CXX``; by default ``g++``).
    """

    cache_dir: Path
    num_threads: int
    cxx: str

    @classmethod
    def from_environment(cls) -> Config:
        """Read the environment.

        Raises
        ------
        UserError
            When ``COLLAGE_NUM_THREADS`` is no number.
        """
        base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
        threads = os.environ.get("COLLAGE_NUM_THREADS", "0")
        if not threads.isdigit():
            raise UserError(
                f"COLLAGE_NUM_THREADS must be a number of threads, not '{threads}'", value=threads
            )
        return cls(
            cache_dir=Path(os.environ.get("COLLAGE_CACHE_DIR") or Path(base) / "collage"),
            num_threads=int(threads),
            cxx=os.environ.get("CXX") or "g++",
        )

    def build_context(self) -> BuildContext:
        """Where and how code generators build that Relax calls by themselves."""
        return BuildContext(self.cache_dir, self.cache_dir / "work", self.num_threads, self.cxx)


def wait_briefly(environment: MutableMapping[str, str] = os.environ) -> None:
    """Let OpenMP's threads soon go to sleep when they wait for each other.

    At the end of each kernel all its threads meet. By default GNU's runtime lets those that come
    first spin 300,000 times, many milliseconds. Where another program has one of the cores, that
    is the time in which the thread that all wait for could have run: beside others, calls took ten
    times as long. The runtime reads its settings when it is loaded, from nowhere but the
    environment; child processes inherit it.

    Parameters
    ----------
    environment : mapping of str to str
        Who has chosen a way of waiting in it keeps that.

    References
    ----------
    GNU libgomp manual, "GOMP_SPINCOUNT" and "OMP_WAIT_POLICY".

    Examples
    --------
    >>> mine = {"OMP_WAIT_POLICY": "active"}
    >>> wait_briefly(mine)
    >>> mine
    {'OMP_WAIT_POLICY': 'active'}
    """
    if "OMP_WAIT_POLICY" not in environment:
        environment.setdefault("GOMP_SPINCOUNT", str(_SPINS))


def send_nothing(environment: MutableMapping[str, str] = os.environ) -> None:
    """Let onnxruntime tell nobody what it is used for.

    Its newer releases keep an identifier of the machine in the user's cache and send its maker
    events over the network, unless the environment says otherwise when it is loaded; child
    processes inherit it.

    Parameters
    ----------
    environment : mapping of str to str
        Who has chosen in it (``ORT_DISABLE_TELEMETRY``, ``0`` to send) keeps that.

    References
    ----------
    onnxruntime, docs/Privacy.md, "Disabling Telemetry".

    Examples
    --------
    >>> mine = {"ORT_DISABLE_TELEMETRY": "0"}
    >>> send_nothing(mine)
    >>> mine
    {'ORT_DISABLE_TELEMETRY': '0'}
    """
    environment.setdefault("ORT_DISABLE_TELEMETRY", "1")
