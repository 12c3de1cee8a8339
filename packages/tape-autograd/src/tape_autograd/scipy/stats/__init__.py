"""`scipy.stats`: the distributions of which Tape has the densities, each a module as in autograd."""

from tape_autograd.scipy.stats import beta, chi2, dirichlet, gamma, multivariate_normal, norm, poisson, t

__all__ = ["beta", "chi2", "dirichlet", "gamma", "multivariate_normal", "norm", "poisson", "t"]
