"""Converters of PyTorch's operators that TVM's translator lacks or gets wrong, a family a file."""
