"""Choices of algorithms, put into a tuning store and looked up there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from collage.backends.cublas.problem import Problem
from collage.backends.cublas.timer import Choice
from collage.backends.cublas.tuning import choice_key, choice_result, read_choice
from collage.backends.storage import TuningStore


def find_choice(
    store: TuningStore, problem: Problem, version: int, device: Mapping[str, Any]
) -> Choice | None:
    """What is remembered for a product and a version of cublasLt, on a device."""
    found = store.find(choice_key(problem, version), device)
    return None if found is None else read_choice(found)


def keep_choice(store: TuningStore, problem: Problem, choice: Choice) -> None:
    """Remember a choice."""
    store.append(choice_key(problem, choice.version), asdict(choice.device), choice_result(choice))
