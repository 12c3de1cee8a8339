"""Special functions: error, gamma, beta, Bessel and incomplete functions."""
