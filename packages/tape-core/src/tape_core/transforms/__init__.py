"""Functions of functions: what they return is differentiated, batched or recomputed."""
