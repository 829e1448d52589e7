"""Fewer digits where an error is allowed: who offers them, what they do, and where they pay."""
