"""The GPU: kernels written for an array namespace (CuPy's, or NumPy's in tests), columns held by cuDF."""
