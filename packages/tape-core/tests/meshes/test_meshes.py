"""What the `distributed` modules of all engines share, with an engine on paper: neither PyTorch nor JAX is needed."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import pytest
import tape_core as tc
from tape_core import meshes
from tape_core.meshes import NamedMesh
from tape_core.support import placement


class Mesh(NamedMesh[tuple[int, ...]]):
    engine_name = "math"

    def __init__(self, axes: dict[str, int], rank: int = 0) -> None:
        super().__init__(tuple(axes.values()), axes, "paper")
        self._rank = rank

    @property
    def rank(self) -> int:
        return self._rank


M = Mesh({"data": 4, "model": 2}, rank=3)


# -- axes


def test_a_mesh_tells_its_axes() -> None:
    assert (M.axes, M.size, M.engine) == ({"data": 4, "model": 2}, 8, math)
    assert repr(M) == "Mesh({'data': 4, 'model': 2}, rank 3, on paper)"
    assert M == Mesh({"data": 4, "model": 2}) != Mesh({"data": 2, "model": 4})
    assert hash(M) == hash(Mesh({"data": 4, "model": 2}))
    assert M.check_axis("data") == "data"
    M.axes["data"] = 7  # of a copy
    assert M.axes["data"] == 4
    with pytest.raises(ValueError, match="the mesh has no axis 'modle'; its axes are 'data', 'model'"):
        M.check_axis("modle")


@pytest.mark.parametrize(("other", "got"), [(None, "None"), ((4, 2), "(4, 2); make it math.Mesh(mesh)")])
def test_what_is_no_mesh_of_the_engine_is_refused(other: Any, got: str) -> None:
    meshes.check_mesh(M, Mesh, tuple, "divide")
    with pytest.raises(TypeError) as caught:
        meshes.check_mesh(other, Mesh, tuple, "divide")
    assert str(caught.value) == f"divide: mesh must be a Mesh of math.mesh(axes); got {got}"


@pytest.mark.parametrize(
    ("axes", "n", "shape"),
    [
        (None, 8, (8,)),
        ({"data": -1}, 1, (1,)),
        ({"data": -1, "model": 2}, 8, (4, 2)),
        ({"data": 2, "model": 2}, 4, (2, 2)),
    ],
)
def test_one_axis_takes_what_remains(axes: dict[str, int] | None, n: int, shape: tuple[int, ...]) -> None:
    assert meshes.asked("mesh", "processes", axes).shape(n) == shape


@pytest.mark.parametrize("axes", [{}, {"data": 0}, {"data": -2}, {"a": -1, "b": -1}, {"data": 2.0}, {"data": "2"}])
def test_axes_that_are_none(axes: Any) -> None:
    with pytest.raises(ValueError, match=r"mesh: got the axes \{.*positive number of devices, and one of them may be"):
        meshes.asked("mesh", "devices", axes)


@pytest.mark.parametrize(
    ("axes", "message"),
    [
        ({"data": 3}, "asks for 3 devices, and there are 8 [(]note[)]: the product of the axes must be 8; .* cure"),
        ({"data": 8, "model": 2}, "asks for 16 devices"),
        ({"data": -1, "model": 3}, "asks for a multiple of 3 devices"),
        ({"data": -1, "model": 16}, "asks for a multiple of 16 devices"),
    ],
)
def test_axes_that_do_not_fit(axes: dict[str, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        meshes.asked("mesh", "devices", axes).shape(8, " (note)", " cure")


# -- layouts


@pytest.mark.parametrize(
    ("layout", "found"),
    [
        ((), [(), ()]),
        (("data",), [("data",), ()]),
        ([None, "model"], [(), ("model",)]),
        ((("data", "model"),), [("data", "model"), ()]),
        (((), ("data",)), [(), ("data",)]),
    ],
)
def test_layouts_name_axes(layout: Any, found: list[tuple[str, ...]]) -> None:
    assert meshes.axes_of_dimensions(layout, M, (8, 4), "x") == found


@pytest.mark.parametrize(
    ("layout", "error", "message"),
    [
        (("modle",), ValueError, "the mesh has no axis 'modle'; its axes are 'data', 'model'"),
        (("data", None, "model"), ValueError, "it has 3 entries, and the array has 2 axes"),
        (("data", "data"), ValueError, "an axis of the mesh divides one axis of the array"),
        ((("model", "model"),), ValueError, "an axis of the mesh divides one axis of the array"),
        ("data", TypeError, r"make it a tuple, \('data',\)"),
        ((0,), TypeError, "its entries are names of the mesh's axes, tuples of them, or None$"),
        ((["data"],), TypeError, "its entries are names of the mesh's axes"),
        (None, TypeError, "None, which is no layout: make it a tuple of the names of the mesh's axes"),
        ({"data": 0}, TypeError, "which is no layout"),
        ({"data"}, TypeError, "which is no layout"),
    ],
)
def test_what_is_no_layout_is_an_error(layout: Any, error: type[Exception], message: str) -> None:
    begin = r"^the layout of kernel of shape \(8, 4\) on Mesh\(.*rank 3, on paper\) is "
    with pytest.raises(error, match=f"{begin}.*{message}"):
        meshes.axes_of_dimensions(layout, M, (8, 4), "kernel")


def test_a_library_may_want_axes_in_order_and_have_other_layouts() -> None:
    read = meshes.axes_of_dimensions
    assert read((("model", "data"),), M, (8,), "x") == [("model", "data")]
    with pytest.raises(ValueError, match="name several axes of the mesh in its order; its axes are 'data', 'model'"):
        read((("model", "data"),), M, (8,), "x", in_order=True)
    with pytest.raises(TypeError, match=r"tuples of them, or None; or others$"):
        read((0,), M, (8,), "x", others="; or others")


def test_parts_are_equal() -> None:
    meshes.check_divides("create", "x", (8, 0, 3), [("data",), ("model",), ()], M, ("data", "model"))
    message = (
        r"create: x of shape \(8, 5\) cannot be divided into 2 equal parts along its axis 1, as the mesh "
        r"\{'data': 4, 'model': 2\} asks for by \('data', 'model'\); pad it to a length of 6, "
        r"choose another axis, or leave it undivided, \(\) \(rank 3\)$"
    )
    with pytest.raises(ValueError, match=message):
        meshes.check_divides("create", "x", (8, 5), [("data",), ("model",)], M, ("data", "model"))


# -- moving


class Doubling:
    """Twice the values, for the walk over a tree; it keeps what it was called with."""

    def __init__(self, *, refused: str | None = None) -> None:
        self.told: list[tuple[str, Any]] = []
        self.refused = refused

    def __call__(self, value: Any, layout: Any, label: str) -> tc.Tensor:
        if label == self.refused:
            raise ValueError(f"{label} cannot be divided")
        self.told.append((label, layout))
        return tc.asarray(value, backend="numpy") * 2


def moved(tree: Any, layout: Any, divide: Callable[..., tc.Tensor]) -> Any:
    return meshes.divide_tree(tree, layout, tc.ones(1, backend="numpy").backend, divide)


def variable(value: Any, name: str | None = None) -> tc.Variable:
    return tc.Variable(tc.asarray(value, backend="numpy"), name=name)


def test_variables_move_in_place_and_arrays_are_new() -> None:
    v, x, divide = variable([1.0, 2.0], "v"), np.ones(2), Doubling()
    found = moved({"v": v, "x": [x]}, ("data",), divide)
    assert found["v"] is v
    assert (v.tolist(), found["x"][0].tolist(), x.tolist()) == ([2.0, 4.0], [2.0, 2.0], [1.0, 1.0])
    assert divide.told == [("['v']", ("data",)), ("['x'][0]", ("data",))]
    assert moved(x, (), divide).tolist() == [2.0, 2.0]
    assert divide.told[-1] == ("an array", ())


def test_what_follows_a_variable_is_laid_out_as_it_is_where_it_has_its_shape() -> None:
    v, moment, rows, divide = (
        variable(np.ones((4, 2)), "v"),
        variable(np.ones((4, 2))),
        variable(np.ones(4)),
        Doubling(),
    )
    placement.follow(v, moment)
    placement.follow(v, rows)
    moved(v, lambda name, v: (name, v.ndim), divide)
    assert divide.told == [("v", ("v", 2)), ("a Variable", ("v", 2)), ("a Variable", ())]


def test_no_variable_moves_where_one_cannot() -> None:
    a, b = variable(1.0, "a"), variable(1.0, "b")
    with pytest.raises(ValueError, match="cannot be divided"):
        moved([a, b], (), Doubling(refused="[1]"))
    assert [float(a), float(b)] == [1.0, 1.0]


def test_mistakes_about_variables() -> None:
    class Empty:
        def named_variables(self) -> list[Any]:
            return []

    with pytest.raises(ValueError, match="there are no Variables yet; a layer makes them in its first call"):
        moved(Empty(), (), Doubling())
    with pytest.raises(TypeError, match="a function of names and Variables is for Variables; give arrays a layout"):
        moved(np.ones(2), lambda name, v: (), Doubling())


def test_parts_of_one_array_are_alike() -> None:
    told = [meshes.about(tc.ones(shape, backend="numpy")) for shape in ((2, 3), (2, 3), (1, 3))]
    meshes.check_parts_alike("x", told[:2])
    message = r"parts of x differ: rank 0 gives shape \(2, 3\) and float32, rank 2 gives shape \(1, 3\) and float32"
    with pytest.raises(ValueError, match=message):
        meshes.check_parts_alike("x", told)


# -- arrays that are made in parts


class Parts(NamedTuple):
    """An array whose parts are all made here; `others` are the states of the other processes."""

    shape: tuple[int, ...]
    places: Sequence[tuple[slice, ...]]
    at_once: int = 50
    others: Sequence[list[int]] = ()

    def drawn(self, between: meshes.Between, dtype: str, device: str | None) -> Any:
        whole = np.full(self.shape, 77, dtype)

        def counted(a: int, b: int) -> Any:
            assert b - a <= self.at_once
            return between(a, b)

        for place in self.places:
            found = np.empty(whole[place].shape, dtype)
            meshes.fill(found, self.shape, [part.start or 0 for part in place], counted, self.at_once)
            whole[place] = found
        return whole

    def of_all(self, numbers: list[int]) -> list[list[int]]:
        return [numbers, *self.others]


@pytest.fixture
def in_parts(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., tc.Tensor]]:
    """A function that makes an array by its parts, on NumPy."""
    backend = tc.ones(1, backend="numpy").backend.library
    monkeypatch.setattr(backend, "random", meshes.PartwiseRandom(backend, backend.random))

    def made(function: Callable[..., Any], parts: Parts, **options: Any) -> tc.Tensor:
        return meshes.make(function, (), options, parts)

    with tc.use_backend("numpy"):
        yield made


ROWS = (slice(0, 3), slice(0, 7)), (slice(3, 6), slice(0, 7))
COLUMNS = (slice(0, 6), slice(0, 4)), (slice(0, 6), slice(4, 7))
CORNER = ((slice(4, 6), slice(3, 5)),)


@pytest.mark.parametrize("places", [ROWS, COLUMNS, CORNER])
@pytest.mark.parametrize("at_once", [5, 7, 20, 1000])  # less than a row, one, some, all
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_parts_have_the_numbers_of_the_whole(in_parts: Any, places: Any, at_once: int, dtype: str) -> None:
    parts = Parts((6, 7), places, at_once)
    for draw in ("uniform", "normal"):
        rng, alone = tc.default_rng(3), tc.default_rng(3)
        found, whole = in_parts(getattr(rng, draw), parts, dtype=dtype), getattr(alone, draw)((6, 7), dtype=dtype)
        for place in places:
            np.testing.assert_allclose(found.numpy()[place], whole.numpy()[place], rtol=1e-6)
        assert float(rng.uniform()) == float(alone.uniform())  # the stream stands where it does after the whole
    for high in (9, 1 << 20):
        found = in_parts(lambda shape, high=high: tc.default_rng(3).integers(0, high, shape), parts)
        whole = tc.default_rng(3).integers(0, high, (6, 7))
        for place in places:
            assert found.numpy()[place].tolist() == whole.numpy()[place].tolist()


@pytest.mark.parametrize("shape", [(), (1,), (0, 3), (3, 0), (2, 3, 5)])
def test_arrays_of_any_shape_are_made(in_parts: Any, shape: tuple[int, ...]) -> None:
    whole = tuple([slice(0, n) for n in shape])
    for draw in ("uniform", "normal"):
        found = in_parts(getattr(tc.default_rng(1), draw), Parts(shape, [whole]))
        np.testing.assert_allclose(found.numpy(), getattr(tc.default_rng(1), draw)(shape).numpy(), rtol=1e-6)


def test_draws_of_other_shapes_are_whole(in_parts: Any) -> None:
    def scaled(shape: tuple[int, ...]) -> tc.Tensor:
        rng = tc.default_rng(0)
        return rng.uniform((2,))[0] * rng.uniform(shape)

    found = in_parts(scaled, Parts((6, 7), ROWS))
    np.testing.assert_allclose(found.numpy(), scaled((6, 7)).numpy(), rtol=1e-6)


def test_mistakes_of_functions_that_make_arrays(in_parts: Any) -> None:
    with pytest.raises(
        ValueError, match=r"create: what .*<lambda> makes has the shape \(3,\), and \(6, 7\) was asked for"
    ):
        in_parts(lambda shape: tc.ones(3), Parts((6, 7), ROWS))
    rng = tc.default_rng(0)
    with pytest.raises(ValueError, match="create: the random generator of rank 1 has another state than that of rank"):
        in_parts(rng.uniform, Parts((6, 7), ROWS, others=[[0, 0, 0]]))
