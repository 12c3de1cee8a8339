"""Names of `autograd.tracer`: `primitive`, `notrace_primitive`, `isbox`, `getval`, `Box`."""

from tape_autograd.boxes import Box, getval, isbox
from tape_autograd.deprecated import primitive
from tape_autograd.primitives import notrace_primitive

__all__ = ["Box", "getval", "isbox", "notrace_primitive", "primitive"]
