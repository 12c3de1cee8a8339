"""`ArrayBox`, the name of `autograd.numpy.numpy_boxes`, which packages use in annotations: it is Box here."""

from tape_autograd.boxes import Box as ArrayBox

__all__ = ["ArrayBox"]
