"""How several attributes get new values, all at once: `any(map(set_attribute, objects, names, values))`.

Signal handlers run, and exceptions such as KeyboardInterrupt come, between two instructions of Python, and never in the
midst of one call of a C function that runs no Python code.
"""

from __future__ import annotations

from typing import Final

set_attribute: Final = object.__setattr__
"""Give an attribute of an object a value, and return None. A `__setattr__` of its class is not run."""
