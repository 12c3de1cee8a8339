"""The name `autograd` for the package; in processes of their own, since it stays."""

from __future__ import annotations

from support import run_python

PROGRAM = """
from tape_autograd import alias
alias.install()
alias.install()
import autograd
import autograd.numpy as np
import autograd.numpy.random as npr
from autograd import grad
from autograd.extend import primitive
from autograd.scipy.stats import norm
from autograd.numpy.numpy_vjps import unbroadcast_f
import tape_autograd, tape_autograd.scipy.stats
assert autograd is tape_autograd
assert autograd.scipy.stats.norm is norm is tape_autograd.scipy.stats.norm
assert tape_autograd.numpy.__spec__.name == "tape_autograd.numpy"
assert grad(lambda x: x**2)(3.0) == 6.0
try:
    import autograd.nowhere
except ModuleNotFoundError as error:
    print(error)
"""

TOO_LATE = """
import sys, types
sys.modules["autograd"] = types.ModuleType("autograd")
from tape_autograd import alias
try:
    alias.install()
except RuntimeError as error:
    print(error)
"""


def test_libraries_that_import_autograd_get_this_package() -> None:
    assert "autograd.nowhere" in run_python("-c", PROGRAM)


def test_it_is_refused_where_autograd_has_been_imported() -> None:
    assert "call it before anything imports autograd" in run_python("-c", TOO_LATE)
