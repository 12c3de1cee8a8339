"""A program for HIPS autograd, with its imports changed."""

import tape_autograd.numpy as np
from tape_autograd import grad, jacobian
from tape_autograd.misc.optimizers import adam


def tanh(x):
    return (1.0 - np.exp(-2 * x)) / (1.0 + np.exp(-2 * x))


assert abs(grad(tanh)(1.0) - 0.419974) < 1e-6
assert abs(grad(grad(tanh))(1.0) + 0.639700) < 1e-6
assert jacobian(lambda x: x[:2] * x[2])(np.array([1.0, 2.0, 3.0])).tolist() == [[3.0, 0.0, 1.0], [0.0, 3.0, 2.0]]
found = adam(grad(lambda x, step: np.sum((x - 3.0) ** 2)), np.zeros(2), num_iters=200, step_size=0.1)
assert np.max(np.abs(found - 3.0)) < 0.05, found
