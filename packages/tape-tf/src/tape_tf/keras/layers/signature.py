"""What a layer's `call` takes, and the dtype it computes in."""

from __future__ import annotations

import inspect
from functools import cache
from typing import Any, NamedTuple

from tape_tf import dtypes
from tape_tf.keras.backend import floatx


class Signature(NamedTuple):
    names: tuple[str, ...]
    training: int | None  # which argument it is
    default: Any
    takes_any: bool


@cache
def signature_of(kind: Any) -> Signature:
    """What `call` takes."""
    parameters = list(inspect.signature(kind.call).parameters.values())[1:]
    names = tuple([p.name for p in parameters])
    takes_any = any([p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters])
    if "training" not in names:
        return Signature(names, None, None, takes_any)
    k = names.index("training")
    # One that must be given is False where nobody says otherwise.
    default = False if parameters[k].default is inspect.Parameter.empty else parameters[k].default
    keyword = parameters[k].kind is inspect.Parameter.KEYWORD_ONLY
    return Signature(names, 10**6 if keyword else k, default, takes_any)


def dtype_name(kind: str, dtype: Any) -> str:
    if dtype is None:
        return floatx()
    if isinstance(dtype, str) and dtype.startswith("mixed_"):
        raise ValueError(f"{kind}: there are no dtype policies here; got {dtype!r}. See tape_nn for mixed precision")
    return dtypes.as_dtype(dtype).name
