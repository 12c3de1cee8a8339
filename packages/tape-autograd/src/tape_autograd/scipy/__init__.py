"""SciPy's functions for values that are being differentiated: `special`, `stats`, `linalg`, `signal`, `integrate`.

It needs SciPy: `pip install 'tape-autograd[scipy]'`.
"""

try:
    import scipy as _scipy  # noqa: F401
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        "tape_autograd.scipy calls SciPy, which is not installed: pip install 'tape-autograd[scipy]'", name="scipy"
    ) from error
