"""What is run on a machine with a GPU: facts, numerics, and whole networks beside the peers."""
