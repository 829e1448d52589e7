"""Operators on one element at a time, in the type and the digits that PyTorch computes them in."""
