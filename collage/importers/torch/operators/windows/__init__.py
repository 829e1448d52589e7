"""Operators over windows and borders: pools, interpolations, pads."""
