"""Cases of CUTLASS."""
