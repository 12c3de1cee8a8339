"""Names as Keras gives them: `dense`, `dense_1`, and after a class `MyModel` `my_model`."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any

_used: Counter[str] = Counter()


def snake_case(name: str) -> str:
    """`name` of a class in the form of an attribute's.

    >>> from tape_tf.keras.naming import snake_case
    >>> snake_case("BatchNormalization"), snake_case("LSTM"), snake_case("Conv2D")
    ('batch_normalization', 'lstm', 'conv2d')
    """
    name = re.sub(r"\W+", "", name)
    name = re.sub(r"(.)([A-Z][a-z]+)", r"\1_\2", name)
    return re.sub(r"([a-z])([A-Z])", r"\1_\2", name).lower()


def auto_name(prefix: str) -> str:
    """`prefix` itself at its first use, then with a number."""
    prefix = snake_case(prefix)
    number = _used[prefix]
    _used[prefix] += 1
    return f"{prefix}_{number}" if number else prefix


def clear_session() -> None:
    """Number names from the beginning again."""
    _used.clear()


def by_name(kind: str, name: object, known: Mapping[str, Any]) -> Any:
    """What a string stands for.

    Raises:
        ValueError: nothing has this name.
    """
    if isinstance(name, str) and name in known:
        return known[name]
    close = get_close_matches(str(name), known, n=1)
    hint = f" Did you mean {close[0]!r}?" if close else f" There are: {', '.join(sorted(known))}."
    raise ValueError(f"Could not interpret {kind} identifier: {name!r}.{hint}")
