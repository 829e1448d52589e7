"""Cases of cuDNN."""
