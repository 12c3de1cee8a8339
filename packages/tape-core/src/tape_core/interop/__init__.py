"""Other libraries' protocols on Tensors: NumPy's functions and einops."""
