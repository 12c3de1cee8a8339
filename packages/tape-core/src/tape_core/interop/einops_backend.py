"""Tensors in einops: rearrange, reduce, repeat, einsum, pack and unpack of Tensors are recorded like any other op.

einops asks the classes that derive from its `AbstractBackend`. Ours is made when einops is imported, before or after
tape_core. A program that never imports einops pays nothing: tape_core does not import it.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType
from typing import Any

from tape_core.typing import ArrayLike


def declare(backends: ModuleType) -> None:
    """Declare the class that einops finds, of whose module of backends it is."""
    import tape_core as tc

    if not hasattr(backends, "AbstractBackend"):
        return
    reductions = {name: getattr(tc, name) for name in ("all", "any", "max", "mean", "min", "prod", "sum")}

    class TapeBackend(backends.AbstractBackend):  # type: ignore[name-defined,misc]
        framework_name = "tape_core"  # einops asks the class only if sys.modules has this name

        def is_appropriate_type(self, tensor: object) -> bool:
            return isinstance(tensor, tc.Tensor)

        def from_numpy(self, x: ArrayLike) -> Any:
            return tc.asarray(x)

        def to_numpy(self, x: ArrayLike) -> Any:
            return x.numpy()

        def arange(self, start: int, stop: int) -> Any:
            return tc.arange(start, stop)

        def reshape(self, x: ArrayLike, shape: Any) -> Any:
            return tc.reshape(x, tuple(shape))

        def transpose(self, x: ArrayLike, axes: Any) -> Any:
            return tc.permute_dims(x, tuple(axes))

        def reduce(self, x: ArrayLike, operation: str, axes: Any) -> Any:
            return reductions[operation](x, axis=tuple(axes))

        def stack_on_zeroth_dimension(self, tensors: list[Any]) -> Any:
            return tc.stack(tensors, axis=0)

        def tile(self, x: ArrayLike, repeats: Any) -> Any:
            return tc.tile(x, tuple(repeats))

        def concat(self, tensors: Sequence[Any], axis: int) -> Any:
            return tc.concat(list(tensors), axis=axis)

        def is_float_type(self, x: ArrayLike) -> bool:
            return bool(x.dtype.kind.endswith("floating"))

        def add_axis(self, x: ArrayLike, new_position: int) -> Any:
            return tc.expand_dims(x, axis=new_position)

        def einsum(self, pattern: str, *x: Any) -> Any:
            return tc.einsum(pattern, *x)

    # einops finds the class by `AbstractBackend.__subclasses__()`, which holds it weakly: the module keeps it alive.
    backends.TapeBackend = TapeBackend  # type: ignore[attr-defined]
