"""Python's `isinstance`, `type`, `list`, `tuple` and `dict`: as autograd's, they see through boxes.

Structures of values that are differentiated are plain lists, tuples and dicts here, so the last three are Python's
own. So are `DictBox` and `SequenceBox`, which annotations name.
"""

from __future__ import annotations

import builtins as _builtins
from typing import Any

from tape_autograd.boxes import getval, isbox

dict = _builtins.dict
list = _builtins.list
tuple = _builtins.tuple  # type: ignore[type-arg]  # the class itself

DictBox = _builtins.dict
SequenceBox = _builtins.list

__all__ = ["DictBox", "SequenceBox", "dict", "isinstance", "list", "tuple", "type"]


def isinstance(obj: object, class_or_tuple: Any) -> bool:
    """Return whether a value, or the plain value of a box, is an instance of a class."""
    return _builtins.isinstance(getval(obj) if isbox(obj) else obj, class_or_tuple)


def type(obj: object) -> Any:
    """Return the type of a value, or of the plain value of a box."""
    return _builtins.type(getval(obj) if isbox(obj) else obj)
