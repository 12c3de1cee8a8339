"""Special functions, elementwise and beyond the standard, by chapter.

`error_functions` (`erf`, `ndtr`), `gamma`, `bessel`, `logarithms` (`logit`, `xlogy`, `logcumsumexp`), `by_scipy` (what
SciPy computes), `incomplete` (their derivatives by parameters), `composed` (those made of other ops, such as `cbrt`).
"""
