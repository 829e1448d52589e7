"""Logs in databases keep the contract, of SQLite and of a real PostgreSQL server."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from collage.cost.database.sql import SqlDatabase
from collage.testing import DatabaseContract
from tests.postgres import Server


class TestSqlite(DatabaseContract):
    database = SqlDatabase

    def place(self, folder: Path) -> str:
        return f"sqlite:///{folder / 'team.db'}"


class TestPostgres(DatabaseContract):
    database = SqlDatabase
    server: Server

    @pytest.fixture(autouse=True)
    def _of_the_server(self, postgres: Server) -> None:
        self.server = postgres

    def place(self, folder: Path) -> str:
        return self.server.url("log" + hashlib.sha256(str(folder).encode()).hexdigest()[:16])
