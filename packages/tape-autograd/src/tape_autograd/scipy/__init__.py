"""SciPy's functions for values that are being differentiated: `special`, `stats`, `linalg`, `signal`, `integrate`.

It needs SciPy: `pip install 'tape-autograd[scipy]'`.
"""
