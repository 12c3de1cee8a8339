"""What is given as an array and has no numbers in it, or numbers that would be changed."""

import numpy as np
import pytest
import tape_core as tc


@pytest.mark.parametrize("dtype", [None, "float32", "int64"])
def test_none_and_text_are_no_numbers_whatever_the_dtype(dtype):
    for value in (None, [1.0, None], [[1.0], [None]], (None,), [tc.asarray(1.0), None]):
        with pytest.raises(TypeError, match="None is what the gradient of something unconnected is"):
            tc.asarray(value, dtype=dtype)
        with pytest.raises(TypeError, match="unconnected"):
            tc.Variable(value, dtype=dtype)
    for value in ("7", ["7"], [["1.5"]], [1.0, "2"], [b"7"]):
        with pytest.raises(TypeError, match="no number"):
            tc.asarray(value, dtype=dtype)


def test_arrays_of_objects_and_text_are_not_converted():
    for array in (np.array([1.0, None]), np.array(["7"]), np.array([b"7"]), np.array(None)):
        for dtype in (None, "float32"):
            with pytest.raises(TypeError, match=r"asarray: cannot make an array of|no number"):
                tc.asarray(array, dtype=dtype)


def test_a_variable_is_not_assigned_none():
    v = tc.Variable(1.0)
    for method in (v.assign, v.assign_add, v.assign_sub):
        for value in (None, [None]):
            with pytest.raises(TypeError, match=r"Variable.assign.*unconnected"):
                method(value)
    assert v.numpy() == 1.0


def test_python_values_are_assigned_only_where_nothing_is_lost():
    whole, real = tc.Variable([1, 2]), tc.Variable([1.0, 2.0], name="real")
    for method in ("assign", "assign_add", "assign_sub"):
        for value in ([1.5, 2.5], [1.5, 2], [True, False], [1j, 0]):
            with pytest.raises(TypeError, match=rf"Variable.{method}: cannot take"):
                getattr(whole, method)(value)
        for value in ([True, False], [1j, 2.0], "7", ["7", "8"]):
            with pytest.raises(TypeError, match=rf"Variable.{method}: cannot take .*'real'"):
                getattr(real, method)(value)
    scalar = tc.Variable(1)
    for value in (1.5, True, "7", None, 1j):
        with pytest.raises(TypeError, match="cannot take"):
            scalar.assign(value)
    assert (whole.tolist(), real.tolist(), scalar.numpy()) == ([1, 2], [1.0, 2.0], 1)
    assert tc.Variable(0.0).assign(7).item() == 7.0
    assert tc.Variable([0.0, 0.0]).assign([1, 2]).tolist() == [1.0, 2.0]
    assert tc.Variable(0j).assign(1.5).item() == 1.5
    assert tc.Variable(0.0, dtype="float64").assign(0.1).item() == 0.1
    assert tc.Variable(False).assign(True).item() is True
    assert tc.Variable(tc.zeros(0, dtype="int64")).assign([]).shape == (0,)


def test_a_dtype_that_is_asked_for_truncates_as_astype_does():
    assert tc.asarray([1.5, -2.5], dtype="int64").tolist() == [1, -2]
    assert tc.asarray(np.asarray([1.5]), dtype="int64").tolist() == [1]


def test_numbers_that_do_not_fit_and_lists_that_contain_themselves_say_so():
    with pytest.raises(OverflowError, match="asarray: cannot make an array of"):
        tc.asarray(2**70)
    cyclic = [1.0]
    cyclic.append(cyclic)
    for call in (tc.asarray, tc.Variable, tc.GradientTape().watch, tc.grad(lambda x: x)):
        with pytest.raises(ValueError, match="contains itself"):
            call(cyclic)
    with tc.GradientTape() as tape:
        pass
    with pytest.raises(ValueError, match="contains itself"):
        tape.gradient(tc.asarray(1.0), cyclic)
