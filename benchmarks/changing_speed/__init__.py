"""Searches on machines whose speed changes, simulated: ``python -m benchmarks.changing_speed``."""
