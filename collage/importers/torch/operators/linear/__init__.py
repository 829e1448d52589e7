"""Products, attention, and what is made of matrices."""
