"""Reductions along memory: rows of chains of them, and single ones, in whole vectors."""

from __future__ import annotations
