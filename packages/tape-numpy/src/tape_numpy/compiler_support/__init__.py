"""NumPy's part of compiled functions: fused blocks, calls with `out=`, lowered kernels."""
