"""A library whose arrays lack attributes of the standard: the error says which op asked for what, of which backend."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
import tape_core as tc
from tape_core.backends import ArrayAPIBackend, Backend
from tape_core.extend import registry, vjp

SOURCE = Path(__file__).parent / "plugins" / "tape-immutable" / "src"


@pytest.fixture(scope="module")
def bare() -> Backend:
    sys.path.insert(0, str(SOURCE))
    try:
        from tape_immutable import arrays
    finally:
        sys.path.remove(str(SOURCE))
    import array_api_compat.numpy

    class Bare(arrays.Array):
        def __getattribute__(self, name: str) -> object:
            if name in ("mT", "device"):
                raise AttributeError(f"'Bare' object has no attribute {name!r}", name=name, obj=self)
            return super().__getattribute__(name)

    class Namespace(arrays.Namespace):
        def __getattr__(self, name: str) -> object:
            found = super().__getattr__(name)
            if isinstance(found, arrays.Namespace | type) or not callable(found):
                return found
            return lambda *args, **kwargs: bared(found(*args, **kwargs))

    def bared(value: object) -> object:
        return value.view(Bare) if isinstance(value, arrays.Array) else value

    return ArrayAPIBackend("bare", Namespace(array_api_compat.numpy), array_types=("tests:Bare",))


def test_the_attribute_of_an_array_that_a_rule_asks_for(bare):
    with tc.use_backend(bare), tc.GradientTape() as tape:
        x = tc.asarray([[1.0, 2.0], [3.0, 4.0]])
        tape.watch(x)
        y = x @ x
        with pytest.raises(TypeError) as caught:
            tape.gradient(y, x)
    text = str(caught.value)
    assert "the rule of 'matmul' for 'x1' (" in text
    assert "products.py:" in text
    assert "backend 'bare'" in text
    assert "no attribute 'mT'" in text


def test_the_attribute_of_an_array_that_a_kernel_asks_for(bare):
    with tc.use_backend(bare):
        x = tc.asarray([[[1.0, 2.0], [3.0, 4.0]]])
        with pytest.raises(TypeError, match=r"attend\(.*float32.*backend 'bare'.*no attribute 'mT'"):
            tc.scaled_dot_product_attention(x, x, x)
        assert x.device == bare.default_device


@pytest.mark.each_backend
@pytest.mark.parametrize("recorded", [False, True])
def test_an_error_in_a_rule_says_which_rule_on_which_backend(recorded):
    def broken(xp, g, out):
        return xp.expp(out) if out.shape else g / None

    backend = tc.get_backend()
    own = dict(backend.rules.get("tanh", {}))  # a copy: what is replaced is replaced in place
    registry.override("tanh", backend, x=vjp(broken))
    try:
        for value, error in (([1.0, 2.0], AttributeError), (1.0, TypeError)):
            with tc.GradientTape(persistent=True) as outer, tc.GradientTape() as tape:
                x = tc.asarray(value)
                tape.watch(x)
                outer.watch(x)
                y = tc.tanh(x)
                if recorded:
                    with pytest.raises(error) as caught:
                        tape.gradient(y, x)
            if not recorded:
                with pytest.raises(error) as caught:
                    tape.gradient(y, x)
            text = f"{caught.value} {getattr(caught.value, '__notes__', '')}"
            assert f"backend {backend.name!r}" in text
            assert "the rule of 'tanh' for 'x' (" in text
            assert f"test_bare_arrays.py:{broken.__code__.co_firstlineno}" in text
            if error is AttributeError and not recorded:
                assert "has no kernel 'expp'" in text
                assert "did you mean 'exp" in text
        with pytest.raises(AttributeError, match="did you mean 'exp") as caught:
            tc.jvp(tc.tanh, (tc.ones(2),), (tc.ones(2),))
        assert f"in forward mode on backend {backend.name!r}: the rule of 'tanh' for 'x' (" in caught.value.__notes__[0]
    finally:
        backend.rules.pop("tanh")
        if own:
            backend.rules["tanh"] = own
        for above in backend.wrappers():
            registry["tanh"].bindings.pop(above, None)


def test_names_of_ops_that_are_not_there():
    with pytest.raises(KeyError, match=r"no op 'softclop'"):
        registry.override("softclop", tc.get_backend(), x=vjp(lambda xp, g: g))
    with pytest.raises(KeyError, match=r"no op 'sofmax' is declared; did you mean 'softmax'\?"):
        registry["sofmax"]


def test_arrays_that_reach_numpy_by_dlpack_alone(monkeypatch):
    strict = pytest.importorskip("array_api_strict")
    backend = ArrayAPIBackend("strict", strict, array_types=("array_api_strict:Array",))
    with tc.use_backend(backend):
        a = tc.asarray([0.5, 2.0], dtype=tc.float64)
        expected = tc.special.gammainc(a, 1.5).tolist()
        for name in ("__array__", "__buffer__"):
            monkeypatch.delattr(type(a.array), name, raising=False)
        assert tc.special.gammainc(a, 1.5).tolist() == expected


@pytest.mark.parametrize("value", [[1, 2], [[1], [2**40]], (3,), [True, 2]])
def test_a_library_whose_own_integers_are_int32(value):
    strict = pytest.importorskip("array_api_strict")

    class Small(ArrayAPIBackend):
        def asarray(self, obj, *, dtype=None, device=None, copy=None):
            found = super().asarray(obj, dtype=dtype, device=device, copy=copy)
            is_own = dtype is None and not hasattr(obj, "dtype") and found.dtype == strict.int64
            return strict.astype(found, strict.int32) if is_own else found

    with tc.use_backend(Small("small", strict, array_types=("array_api_strict:Array",))):
        found = tc.asarray(value)
        assert found.dtype is tc.int64
        assert found.tolist() == [list(part) if isinstance(part, list) else int(part) for part in value]
        assert tc.asarray(np.asarray(value[:1], dtype=np.int32)).dtype is tc.int32
