"""A floor under every operator: the best candidate for each against PyTorch's own kernel."""
