"""Cases of cuBLAS."""
