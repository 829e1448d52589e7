"""Partitions as graphs of cuDNN's operations, a family a file; a graph itself is in ``problem``."""
