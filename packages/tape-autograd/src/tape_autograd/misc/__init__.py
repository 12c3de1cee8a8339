"""`flatten` and `const_graph`; further modules are `optimizers` and `fixed_points`."""

from tape_autograd.misc.flatten import flatten
from tape_autograd.misc.tracers import const_graph

__all__ = ["const_graph", "flatten"]
