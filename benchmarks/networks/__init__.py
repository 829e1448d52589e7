"""The networks that are measured, real and small ones: random weights, no downloads."""
