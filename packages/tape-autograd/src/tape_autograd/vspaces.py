"""Vector spaces: the shape and dtype of a value, or of the parts of a structure, and the operations on such values."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import numpy as np
from tape_core.support import pytree
from tape_core.typing import ArrayLike, PyTree

import tape_autograd.numpy as anp
from tape_autograd.boxes import Box

Maker = Callable[[Any], "VSpace"]


class VSpace:
    """The vector space that a value is in; `vspace(value)` makes it.

    Attributes:
        size: its dimension over the real numbers.
        iscomplex: whether the values are complex.
    """

    iscomplex = False
    size: int = 0
    mappings: ClassVar[dict[type, Maker]] = {}

    def __init__(self, value: ArrayLike) -> None:
        """Describe a value."""

    @classmethod
    def register(cls, value_type: type, vspace_maker: Maker | None = None) -> None:
        """Have `vspace` use this class, or a function that makes one, for values of a type."""
        VSpace.mappings[value_type] = vspace_maker or cls

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self.__dict__ == other.__dict__

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"{type(self).__name__}_{self.__dict__}"

    def zeros(self) -> Any:
        """Return the zero."""
        raise NotImplementedError(repr(self))

    def ones(self) -> Any:
        """Return the sum of the basis."""
        raise NotImplementedError(repr(self))

    def standard_basis(self) -> Iterator[Any]:
        """Yield the vectors of a basis."""
        raise NotImplementedError(repr(self))

    def randn(self) -> Any:
        """Return a vector of normal numbers, from NumPy's global generator."""
        raise NotImplementedError(repr(self))

    def add(self, x: PyTree, y: PyTree) -> Any:
        """Return the sum."""
        return x + y

    def mut_add(self, x: PyTree, y: PyTree) -> Any:
        """Return the sum; of None it is y."""
        return y if x is None else self.add(x, y)

    def scalar_mul(self, x: PyTree, a: ArrayLike) -> Any:
        """Return the product with a number."""
        return x * a

    def inner_prod(self, x: PyTree, y: PyTree) -> Any:
        """Return the inner product, a real number."""
        raise NotImplementedError(repr(self))

    def covector(self, x: PyTree) -> Any:
        """Return the covector of a vector: its conjugate."""
        return x


class ArrayVSpace(VSpace):
    """The space of real arrays of one shape and dtype."""

    def __init__(self, value: ArrayLike) -> None:
        self.shape: tuple[int, ...] = anp.shape(value)
        self.dtype = np.dtype(anp.result_type(value))

    @property
    def size(self) -> int:  # type: ignore[override]
        """The number of elements."""
        return int(np.prod(self.shape))

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return len(self.shape)

    def zeros(self) -> Any:
        """Return the zero."""
        return np.zeros(self.shape, dtype=self.dtype)

    def ones(self) -> Any:
        """Return the sum of the basis."""
        return np.ones(self.shape, dtype=self.dtype)

    def standard_basis(self) -> Iterator[Any]:
        """Yield the arrays that have a single one."""
        for index in np.ndindex(*self.shape):
            vector = self.zeros()
            vector[index] = 1
            yield vector

    def randn(self) -> Any:
        """Return normal numbers, from NumPy's global generator."""
        return np.asarray(np.random.randn(*self.shape)).astype(self.dtype)

    def inner_prod(self, x: ArrayLike, y: ArrayLike) -> Any:
        """Return the sum of the products of elements."""
        return anp.dot(anp.ravel(x), anp.ravel(y))


class ComplexArrayVSpace(ArrayVSpace):
    """The space of complex arrays of one shape and dtype, over the real numbers."""

    iscomplex = True

    @property
    def size(self) -> int:  # type: ignore[override]
        """Twice the number of elements."""
        return 2 * int(np.prod(self.shape))

    def ones(self) -> Any:
        """Return the sum of the basis, 1 + 1j everywhere."""
        return np.full(self.shape, 1.0 + 1.0j, dtype=self.dtype)

    def standard_basis(self) -> Iterator[Any]:
        """Yield the arrays that have a single 1, or a single 1j."""
        for vector in super().standard_basis():
            yield vector
            yield 1j * vector

    def randn(self) -> Any:
        """Return numbers with normal real and imaginary parts."""
        parts = [np.asarray(np.random.randn(*self.shape)) for _ in range(2)]
        return (parts[0] + 1j * parts[1]).astype(self.dtype)

    def inner_prod(self, x: ArrayLike, y: ArrayLike) -> Any:
        """Return the real part of the Hermitian inner product."""
        return anp.real(anp.dot(anp.conj(anp.ravel(x)), anp.ravel(y)))

    def covector(self, x: ArrayLike) -> Any:
        """Return the conjugate."""
        return anp.conj(x)


class ContainerVSpace(VSpace):
    """The space of lists, tuples or dicts of arrays."""

    def __init__(self, value: PyTree) -> None:
        leaves, structure = pytree.flatten(value)
        self.parts = [vspace(leaf) for leaf in leaves]
        self.kind = type(value)
        self.shape: Any = pytree.unflatten(structure, list(self.parts))

    @property
    def size(self) -> int:  # type: ignore[override]
        """The sum of the sizes of the parts."""
        return sum([part.size for part in self.parts])

    def _map(self, method: str, *trees: PyTree) -> list[Any]:
        leaves = [pytree.flatten(tree)[0] for tree in trees]
        return [getattr(part, method)(*xs) for part, *xs in zip(self.parts, *leaves, strict=True)]

    def _nested(self, leaves: list[Any]) -> Any:
        structure = pytree.flatten(self.shape)[1]
        return pytree.unflatten(structure, leaves)

    def zeros(self) -> Any:
        """Return the zero."""
        return self._nested(self._map("zeros"))

    def ones(self) -> Any:
        """Return the sum of the basis."""
        return self._nested(self._map("ones"))

    def standard_basis(self) -> Iterator[Any]:
        """Yield structures of which one part is of its basis, and the others zero."""
        for k, part in enumerate(self.parts):
            for vector in part.standard_basis():
                leaves = self._map("zeros")
                leaves[k] = vector
                yield self._nested(leaves)

    def randn(self) -> Any:
        """Return normal numbers."""
        return self._nested(self._map("randn"))

    def add(self, x: PyTree, y: PyTree) -> Any:
        """Return the sums of the parts."""
        return self._nested(self._map("add", x, y))

    def scalar_mul(self, x: PyTree, a: ArrayLike) -> Any:
        """Return the products of the parts with a number."""
        return self._nested([part.scalar_mul(v, a) for part, v in zip(self.parts, pytree.flatten(x)[0], strict=True)])

    def inner_prod(self, x: PyTree, y: PyTree) -> Any:
        """Return the sum of the inner products of the parts."""
        return sum(self._map("inner_prod", x, y))

    def covector(self, x: PyTree) -> Any:
        """Return the covectors of the parts."""
        return self._nested(self._map("covector", x))


def vspace(value: PyTree) -> VSpace:
    """Return the vector space of a value: of an array, a float or complex number, or a list, tuple or dict of them.

    >>> print(vspace(1.0).size, vspace([1.0, 2j]).size)
    1 3

    Raises:
        TypeError: such values make no vector space.
    """
    kind = type(value)
    if kind in VSpace.mappings:
        return VSpace.mappings[kind](value)
    if kind is Box or kind in (float, complex) or isinstance(value, np.ndarray | np.floating | np.complexfloating):
        return ComplexArrayVSpace(value) if anp.iscomplexobj(value) else ArrayVSpace(value)
    if isinstance(value, list | tuple | dict):
        return ContainerVSpace(value)
    raise TypeError(
        f"Can't find vector space for value {value!r} of type {kind}. Valid types are arrays, floats and complex "
        f"numbers, and lists, tuples and dicts of them"
    )
