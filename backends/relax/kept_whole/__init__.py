"""Operators of ours, kept whole for kernels; by other operators where no kernel takes them."""
