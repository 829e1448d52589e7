"""Processes that take turns, what their times say, and where and on what they ran."""
