"""PyTorch's own samples of its operators and modules through ``collage.optimize``."""
