"""Files of tensors."""

from __future__ import annotations

import json
import os
import re
import stat
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tape_core as tc
import tape_nn as nn
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors import numpy as reference
from tape_nn import checkpoints

DTYPES = [
    "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
    "float16", "float32", "float64", "complex64",
]  # fmt: skip


def bits(x: Any) -> bytes:
    return np.ascontiguousarray(x).tobytes()


@settings(max_examples=60, deadline=None)
@given(
    arrays=st.dictionaries(
        st.text(min_size=1, max_size=8).filter(lambda name: name != "__metadata__"),
        st.tuples(
            st.sampled_from(DTYPES), st.lists(st.integers(0, 3), max_size=3).map(tuple), st.integers(0, 2**32 - 1)
        ),
        max_size=4,
    ),
    metadata=st.dictionaries(st.text(max_size=5), st.text(max_size=5), max_size=3),
)
def test_what_is_written_is_read(
    tmp_path_factory: pytest.TempPathFactory, arrays: Any, metadata: dict[str, str]
) -> None:
    path = tmp_path_factory.mktemp("files") / "state.safetensors"
    values = {}
    for name, (dtype, shape, seed) in arrays.items():
        count = int(np.prod(shape)) * np.dtype(dtype).itemsize
        raw = np.random.default_rng(seed).integers(0, 2 if dtype == "bool" else 256, count, dtype=np.uint8)
        values[name] = raw.view(dtype).reshape(shape)  # any bits at all, NaN among them
    nn.save_tensors(path, values, metadata)
    found, text = nn.load_tensors(path, backend="numpy")
    assert text == metadata
    assert found.keys() == values.keys()
    for name, value in values.items():
        assert (found[name].shape, found[name].dtype.name) == (value.shape, value.dtype.name)
        assert bits(found[name].array) == bits(value)
    # The independent reader agrees.
    for name, value in reference.load_file(path).items():
        assert bits(value) == bits(values[name])


def test_views_are_written_in_order(tmp_path: Path) -> None:
    path = tmp_path / "x"
    x = np.arange(6.0).reshape(2, 3)
    nn.save_tensors(path, {"t": x.T, "reversed": x[::-1], "expanded": np.broadcast_to(x[0], (2, 3)), "zero": x[0, 0]})
    found, metadata = nn.load_tensors(path)
    assert found["t"].tolist() == x.T.tolist()
    assert found["reversed"].tolist() == x[::-1].tolist()
    assert found["expanded"].tolist() == [[0, 1, 2], [0, 1, 2]]
    assert found["zero"].shape == ()
    assert metadata == {}


def test_variables_are_written_without_being_read(tmp_path: Path) -> None:
    v = tc.Variable([1.0, 2.0])
    with tc.GradientTape() as tape:
        nn.save_tensors(tmp_path / "x", {"v": v})
    assert tape.watched_variables() == ()
    (tensor,) = nn.load_tensors(tmp_path / "x")[0].values()
    assert type(tensor) is tc.Tensor
    assert tensor.tolist() == [1, 2]


def test_a_loaded_tensor_owns_its_memory(tmp_path: Path) -> None:
    nn.save_tensors(tmp_path / "x", {"v": tc.ones(3)})
    v = tc.Variable(nn.load_tensors(tmp_path / "x")[0]["v"])
    v.assign_add(tc.ones(3))
    assert v.tolist() == [2, 2, 2]


@pytest.mark.parametrize("failing", ["fsync", "replace"])
def test_a_failed_write_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: str) -> None:
    path = tmp_path / "x"
    nn.save_tensors(path, {"v": tc.ones(3)})
    before = path.read_bytes()

    def fail(*arguments: Any, **keywords: Any) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, failing, fail)
        with pytest.raises(OSError, match=r"No space left.*x'"):
            nn.save_tensors(path, {"v": tc.zeros(3)})
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["x"]


def test_every_flipped_bit_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x"
    nn.save_tensors(path, {"w": np.arange(4.0), "b": np.asarray([True]), "n": np.zeros((0, 2))}, {"step": "7"})
    whole = bytearray(path.read_bytes())
    for bit in range(8 * len(whole)):
        whole[bit // 8] ^= 1 << bit % 8
        path.write_bytes(whole)
        with pytest.raises(ValueError, match=re.escape(repr(str(path)))):
            nn.load_tensors(path)
        whole[bit // 8] ^= 1 << bit % 8
    path.write_bytes(whole)
    assert nn.load_tensors(path)[0]["w"].tolist() == [0, 1, 2, 3]


def test_a_file_of_another_program_needs_no_checksum(tmp_path: Path) -> None:
    reference.save_file({"w": np.ones(3)}, tmp_path / "x", {"by": "them"})
    found, metadata = nn.load_tensors(tmp_path / "x")
    assert found["w"].tolist() == [1, 1, 1]
    assert metadata == {"by": "them"}


def test_names_and_texts_may_look_like_the_checksum(tmp_path: Path) -> None:
    text = 'x","tape.checksum":"sha256:' + "0" * 64 + '"'
    nn.save_tensors(tmp_path / "x", {"tape.checksum": tc.ones(1), text: tc.ones(2)}, {text: text, "a": text})
    found, metadata = nn.load_tensors(tmp_path / "x")
    assert found.keys() == {"tape.checksum", text}
    assert metadata == {text: text, "a": text}
    with pytest.raises(TypeError, match=r"'tape\.checksum' is written by save_tensors itself"):
        nn.save_tensors(tmp_path / "x", {}, {"tape.checksum": "1"})


@pytest.mark.parametrize(
    ("entry", "data", "message"),
    [
        ({"dtype": "BOOL", "shape": [2]}, b"\1\2", "a truth value is neither 0 nor 1"),
        ({"dtype": "F32", "shape": [1] * 100}, b"abcd", "100|maximum supported dimension"),
        ({"dtype": "F32", "shape": [0, 2**62, 2**62]}, b"", "damaged"),
        ({"dtype": "F64", "shape": [2**40]}, b"abcdefgh", "damaged"),
    ],
)
def test_what_arrays_cannot_be_is_refused(tmp_path: Path, entry: Any, data: bytes, message: str) -> None:
    header = json.dumps({"w": entry | {"data_offsets": [0, len(data)]}}).encode()
    (tmp_path / "x").write_bytes(len(header).to_bytes(8, "little") + header + data)
    with pytest.raises(ValueError, match=message) as caught:
        nn.load_tensors(tmp_path / "x")
    assert repr(str(tmp_path / "x")) in str(caught.value)


@pytest.mark.skipif(os.name != "posix", reason="folders can be locked on POSIX only")
def test_a_draft_that_is_being_written_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another program that begins a run with the same file must not take the draft away."""
    path = tmp_path / "x"
    left = tmp_path / ".x.0123456789abcdef"
    left.touch()
    replace = os.replace
    drafts = []

    def meanwhile(source: Any, target: Any) -> None:
        checkpoints.remove_drafts(path)
        drafts.append(os.path.exists(source))
        replace(source, target)

    monkeypatch.setattr(os, "replace", meanwhile)
    nn.save_tensors(path, {"v": tc.ones(3)})
    assert drafts == [True]
    assert left.exists(), "whose draft it is cannot be known while somebody writes"
    checkpoints.remove_drafts(path)
    assert os.listdir(tmp_path) == ["x"]


def test_a_link_stays_one_and_the_usual_rights_hold(tmp_path: Path) -> None:
    path, link = tmp_path / "x", tmp_path / "latest"
    link.symlink_to(path)
    nn.save_tensors(link, {"v": tc.ones(3)})
    assert link.is_symlink()
    assert nn.load_tensors(path)[0]["v"].tolist() == [1, 1, 1]
    (tmp_path / "other").touch()
    assert stat.S_IMODE(path.stat().st_mode) == stat.S_IMODE((tmp_path / "other").stat().st_mode)


@pytest.mark.skipif(os.name != "posix", reason="rights and pipes are POSIX's")
def test_who_may_read_a_file_stays_so_when_it_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.touch()
    path.chmod(0o600)
    nn.save_tensors(path, {"v": tc.ones(3)})
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.skipif(os.name != "posix", reason="rights and pipes are POSIX's")
def test_what_is_no_file_is_not_replaced(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match=r"save_tensors: only a file can be replaced.*pipe"):
        nn.save_tensors(tmp_path / "pipe", {"v": tc.ones(3)})
    assert stat.S_ISFIFO((tmp_path / "pipe").stat().st_mode)
    (tmp_path / "folder").mkdir()
    with pytest.raises(IsADirectoryError, match=r"save_tensors: this is a folder.*folder'$"):
        nn.save_tensors(tmp_path / "folder", {"v": tc.ones(3)})
    assert sorted(os.listdir(tmp_path)) == ["folder", "pipe"]


def test_messages_of_writing(tmp_path: Path) -> None:
    path = tmp_path / "x"
    with pytest.raises(TypeError, match="'w' has dtype complex128, which the safetensors format lacks"):
        nn.save_tensors(path, {"w": np.ones(2, dtype=np.complex128)})
    with pytest.raises(TypeError, match="3 cannot be the name"):
        nn.save_tensors(path, {3: tc.ones(1)})  # type: ignore[dict-item]
    with pytest.raises(TypeError, match="'__metadata__' cannot be the name"):
        nn.save_tensors(path, {"__metadata__": tc.ones(1)})
    with pytest.raises(TypeError, match="metadata are strings by name; got 'step': 7"):
        nn.save_tensors(path, {}, {"step": 7})  # type: ignore[dict-item]
    for metadata in (["step"], "step"):
        with pytest.raises(TypeError, match="metadata must be a mapping of strings by name, got"):
            nn.save_tensors(path, {}, metadata)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="tensors must be a mapping of Tensors by name, got list"):
        nn.save_tensors(path, [tc.ones(1)])  # type: ignore[arg-type]
    with pytest.raises(FileNotFoundError, match=r"there is no folder .*missing"):
        nn.save_tensors(tmp_path / "missing" / "x", {})
    assert os.listdir(tmp_path) == []


def test_messages_of_reading(tmp_path: Path) -> None:
    path = tmp_path / "x"
    with pytest.raises(FileNotFoundError):
        nn.load_tensors(path)
    reading, writing = os.pipe()
    try:
        with pytest.raises(TypeError, match="not int"):  # it would be read, and closed
            nn.load_tensors(reading)  # type: ignore[arg-type]
        os.fstat(reading)
    finally:
        os.close(reading)
        os.close(writing)
    nn.save_tensors(path, {"v": tc.ones(3)})
    whole = path.read_bytes()
    for content in (b"", whole[:-1], whole[:20], b"\x80\x04not at all"):
        path.write_bytes(content)
        with pytest.raises(ValueError, match=re.escape(repr(str(path))) + " is damaged or not in safetensors format"):
            nn.load_tensors(path)
    header = json.dumps({"q": {"dtype": "F8_E4M3", "shape": [2], "data_offsets": [0, 2]}}).encode()
    path.write_bytes(len(header).to_bytes(8, "little") + header + b"ab")
    with pytest.raises(TypeError, match=r"dtypes that Tensors do not have: 'q' \(F8_E4M3\)"):
        nn.load_tensors(path)


# What bfloat16 rounds to, both zeros, infinities, a subnormal.
BFLOAT16 = [1.0, -2.5, 0.0, -0.0, float("inf"), -float("inf"), 2.0**-133, 3.140625]


def test_bfloat16_without_a_backend_that_has_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = (np.asarray(BFLOAT16, dtype=np.float32).view(np.uint32) >> 16).astype("<u2").tobytes()
    header = json.dumps({"b": {"dtype": "BF16", "shape": [2, 4], "data_offsets": [0, len(data)]}}).encode()
    (tmp_path / "x").write_bytes(len(header).to_bytes(8, "little") + header + data)
    like = {"b": tc.zeros((2, 4), backend="numpy")}
    assert nn.load_tensors(tmp_path / "x", like=like)[0]["b"].dtype is tc.float32
    backend = like["b"].backend
    monkeypatch.setattr(backend, "_raw_dtypes", {})
    monkeypatch.setattr(backend, "foreign_dtype", super(type(backend), backend).foreign_dtype)
    found = nn.load_tensors(tmp_path / "x", backend="numpy")[0]["b"]
    assert found.dtype is tc.float32
    assert bits(found.array) == bits(np.asarray(BFLOAT16, dtype=np.float32))


def test_across_backends(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    from safetensors.torch import load_file, save_file

    path = tmp_path / "x"
    b = torch.tensor(BFLOAT16, dtype=torch.bfloat16)
    nn.save_tensors(path, {"b": b, "f": np.asarray([1.5]), "view": torch.arange(6.0).reshape(2, 3).T})
    theirs = load_file(path)
    assert theirs["b"].dtype is torch.bfloat16
    assert torch.equal(theirs["b"].view(torch.int16), b.view(torch.int16))
    assert theirs["view"].tolist() == [[0, 3], [1, 4], [2, 5]]
    found, _ = nn.load_tensors(path, backend="torch")
    assert torch.equal(found["b"].array.view(torch.int16), b.view(torch.int16))
    assert (found["f"].backend.name, found["f"].dtype) == ("torch", tc.float64)
    with tc.use_backend("torch"):
        assert nn.load_tensors(path)[0]["f"].backend.name == "torch"
    like = {"f": tc.ones(1, backend="numpy"), "b": tc.Variable(tc.ones(1, backend="torch"))}
    found, _ = nn.load_tensors(path, like=like, backend="numpy")
    assert [found[name].backend.name for name in ("b", "f", "view")] == ["torch", "numpy", "numpy"]
    save_file({"a": b}, path, {"by": "torch"})
    found, metadata = nn.load_tensors(path, backend="torch")
    assert torch.equal(found["a"].array.view(torch.int16), b.view(torch.int16))
    assert metadata == {"by": "torch"}
