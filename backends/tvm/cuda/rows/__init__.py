"""Kernels for the lines of a tensor along an axis: scans, sorts, and places in sorted rows."""
