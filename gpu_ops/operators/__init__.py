"""How each node is computed: over a device's kernels and columns, without knowing which device it is."""
