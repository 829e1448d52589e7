"""Operators over windows: convolutions, pools, resizes."""
