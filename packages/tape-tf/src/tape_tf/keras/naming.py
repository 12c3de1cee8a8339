"""Automatic names of layers and metrics, as Keras numbers them: `dense`, `dense_1`; `my_model` for `MyModel`."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any

_used: Counter[str] = Counter()


def snake_case(name: str) -> str:
    """Convert the name of a class to snake case.

    >>> from tape_tf.keras.naming import snake_case
    >>> snake_case("BatchNormalization"), snake_case("LSTM"), snake_case("Conv2D")
    ('batch_normalization', 'lstm', 'conv2d')
    """
    name = re.sub(r"\W+", "", name)
    # Keras' own two patterns, which make "conv2d" of Conv2D and "lstm" of LSTM.
    name = re.sub(r"(.)([A-Z][a-z]+)", r"\1_\2", name)
    return re.sub(r"([a-z])([A-Z])", r"\1_\2", name).lower()


def auto_name(prefix: str) -> str:
    """Return `prefix` at its first use, and `prefix_1`, `prefix_2` and so on afterwards."""
    prefix = snake_case(prefix)
    # Counted in the whole process, as in Keras: the names of a second model continue those of the first.
    number = _used[prefix]
    _used[prefix] += 1
    return f"{prefix}_{number}" if number else prefix


def clear_session() -> None:
    """Restart the numbering of automatic names."""
    _used.clear()


def by_name(kind: str, name: object, known: Mapping[str, Any]) -> Any:
    """Look up a name in a table.

    Args:
        kind: the kind of thing that is named, for the message.

    Raises:
        ValueError: the table has no such name; the message suggests a similar one.
    """
    if isinstance(name, str) and name in known:
        return known[name]
    close = get_close_matches(str(name), known, n=1)
    hint = f" Did you mean {close[0]!r}?" if close else f" There are: {', '.join(sorted(known))}."
    raise ValueError(f"Could not interpret {kind} identifier: {name!r}.{hint}")
