"""Searches on many workers: what they gain, and what becomes of them when something is killed."""
