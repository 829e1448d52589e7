"""What one operator's call says: its arguments, layouts and windows, and how its operands lie."""
