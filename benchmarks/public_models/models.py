"""Which wheels, which files in them, and what each is fed.

They were chosen for what they do and not because they work, listed before any of them was tried.
A file that two wheels carry is listed once.
"""

from __future__ import annotations

from benchmarks.public_models.languages import languages
from benchmarks.public_models.pictures import pictures
from benchmarks.public_models.sciences import sciences
from benchmarks.public_models.sounds import sounds

MODELS = {m.name: m for family in (pictures, sounds, sciences, languages) for m in family()}
"""By name."""
