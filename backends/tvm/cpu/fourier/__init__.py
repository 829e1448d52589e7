"""Products with the matrices of Fourier transforms, computed as fast transforms."""
