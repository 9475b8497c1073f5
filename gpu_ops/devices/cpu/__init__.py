"""The CPU: kernels compiled by Numba, columns held by Polars."""
