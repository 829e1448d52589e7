"""Legalizations of what takes images and other signals apart: pools, pads and interpolation."""

from __future__ import annotations
