"""Cases of TVM on a GPU."""
