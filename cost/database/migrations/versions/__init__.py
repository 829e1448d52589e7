"""One revision a file, in their order."""
