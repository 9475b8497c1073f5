"""The GPU's kernels, as functions of any array namespace: CuPy's on a GPU, NumPy's in tests."""
