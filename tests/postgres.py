"""A PostgreSQL server of a test's own, on a Unix socket in a folder of its own."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import psycopg

USER, PASSWORD = "ann", "hush/hush@?"
"""A role that has to give its password; all others are trusted."""


def programs() -> Path | None:
    """The folder of the newest PostgreSQL here: of the PATH, or where Debian puts it."""
    found = shutil.which("initdb")
    debian = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    return Path(found).parent if found else debian[-1].parent if debian else None


def missing() -> str:
    """Why no server can be started here; empty where one can."""
    if find_spec("psycopg") is None:
        return "psycopg is not installed (the extra [database])"
    if programs() is None:
        return "there is no PostgreSQL server here (apt-get install postgresql)"
    if os.geteuid() == 0 and not _account():
        return "PostgreSQL refuses to run as root, and there is no user 'postgres'"
    return ""


def _account() -> pwd.struct_passwd | None:
    return next((user for user in pwd.getpwall() if user.pw_name == "postgres"), None)


class Server:
    """A server, and the logs in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._known: set[str] = set()
        self._process: subprocess.Popen[bytes] | None = None
        self._run("initdb", "-D", str(self._data), "-U", "collage", "-A", "trust", "--no-sync",
                  "--encoding=UTF8", "--locale=C").wait()  # fmt: skip
        access = self._data / "pg_hba.conf"
        access.write_text(f"local all {USER} scram-sha-256\nlocal all all trust\n")
        self.start()
        import psycopg

        with self.connection() as connection:
            role = psycopg.sql.SQL("CREATE ROLE {} LOGIN PASSWORD {}")
            connection.execute(role.format(psycopg.sql.Identifier(USER), PASSWORD))

    @property
    def _data(self) -> Path:
        return self.folder / "data"

    def _run(self, program: str, *arguments: str) -> subprocess.Popen[bytes]:
        place = programs()
        assert place is not None
        command = [str(place / program), *arguments]
        if os.geteuid() == 0:
            # It ends with this process, too, however that ends.
            user = ["--reuid=postgres", "--regid=postgres", "--clear-groups", "--pdeathsig=INT"]
            command = ["setpriv", *user, *command]
        with (self.folder / f"{program}.log").open("ab") as output:
            return subprocess.Popen(command, stdout=output, stderr=output, cwd=self.folder)

    def start(self) -> None:
        """Start it, and wait until it answers."""
        import psycopg

        settings = ("listen_addresses=", "fsync=off", "shared_buffers=16MB")
        options = [option for setting in settings for option in ("-c", setting)]
        place = ["-D", str(self._data), "-k", str(self.folder)]
        self._process = self._run("postgres", *place, *options)
        end = time.monotonic() + 60
        while True:
            try:
                self.connection().close()
                return
            except psycopg.OperationalError:
                assert self._process.poll() is None and time.monotonic() < end, self.log()
                time.sleep(0.05)

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """End it: ``SIGINT`` throws everybody out, ``SIGQUIT`` is a crash."""
        if self._process is not None:
            self._process.send_signal(how)
            try:
                self._process.wait(30)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            self._process = None

    def log(self) -> str:
        return (self.folder / "postgres.log").read_text()

    def connection(self) -> psycopg.Connection:
        import psycopg

        host = str(self.folder)
        return psycopg.connect(host=host, user="collage", dbname="postgres", autocommit=True)

    def url(self, log: str, user: str = "collage") -> str:
        """Of a log, in a schema of its own, which is made when it is not there: a database of its
        own would be a thousand files."""
        if log not in self._known:
            with self.connection() as connection:
                connection.execute(f'CREATE SCHEMA "{log}"')
            self._known.add(log)
        path = f"&options=-csearch_path%3D{log}"
        return f"postgresql+psycopg://{user}@/postgres?host={self.folder}{path}"


@contextmanager
def running() -> Iterator[Server]:
    """A new server, which is ended and gone afterwards."""
    # Not in a folder of pytest's, which other users cannot enter.
    with tempfile.TemporaryDirectory(prefix="collage-pg-", dir="/tmp") as name:
        folder = Path(name)
        if os.geteuid() == 0 and (account := _account()):
            os.chown(folder, account.pw_uid, account.pw_gid)
        server: Server | None = None
        try:
            server = Server(folder)
            yield server
        finally:
            if server is not None:
                # At once: nobody wants what it holds.
                server.stop(signal.SIGQUIT)
