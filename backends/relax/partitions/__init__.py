"""Partition functions taken apart: one composite by itself, or a walk through many."""
