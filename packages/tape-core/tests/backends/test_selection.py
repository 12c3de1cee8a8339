"""Which backend makes new arrays, in which order of precedence, and what is said when none can."""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress

import pytest
from tape_core.backends import (
    BackendError,
    BackendLoadError,
    BackendNotFoundError,
    discovery,
    selection,
)
from tape_core.backends.selection import get_backend, select, set_backend, use_backend
from tape_core.base.installing import install_command


def chosen() -> tuple[str, str | None, str]:
    backend, device, reason = select()
    return backend.name, device, reason


# -- precedence


def test_precedence(site, monkeypatch):
    for name in ("alpha", "beta", "gamma", "numpy"):
        site.add(name)
    monkeypatch.setenv("TAPE_BACKEND", "alpha:gpu:0")
    assert chosen() == ("alpha", "gpu:0", "TAPE_BACKEND=alpha:gpu:0")
    set_backend("beta")
    assert chosen() == ("beta", None, "set_backend('beta')")
    with use_backend("gamma", device="gpu:1"):
        assert chosen() == ("gamma", "gpu:1", "use_backend('gamma', device='gpu:1')")
        assert select("numpy") == (discovery.load("numpy"), None, "backend='numpy'")
        assert get_backend().name == "gamma"
    assert chosen()[0] == "beta"
    set_backend(None)
    assert chosen()[0] == "alpha"


def test_numpy_is_preferred(site):
    for name in ("alpha", "numpy", "zeta"):
        site.add(name)
    assert chosen() == ("numpy", None, "numpy is installed")


def test_the_only_one(site):
    site.add("alpha")
    assert chosen() == ("alpha", None, "the only backend installed")


def test_the_only_one_enabled(site, monkeypatch):
    site.add("alpha")
    site.add("numpy")
    monkeypatch.setenv("TAPE_DISABLE_BACKENDS", "numpy")
    assert chosen() == ("alpha", None, "the only backend enabled")


def test_none_installed(site):
    with pytest.raises(BackendError, match=r"no backend is installed\n  .*: pip install .*tape-numpy"):
        get_backend()


def test_several_and_no_numpy(site):
    site.add("alpha")
    site.add("beta")
    with pytest.raises(BackendError) as caught:
        get_backend()
    message = str(caught.value)
    assert "several backends are installed and none is selected: alpha, beta" in message
    assert "TAPE_BACKEND=alpha in the environment, set_backend('alpha'), or with use_back" in message


def test_all_disabled(site, monkeypatch):
    site.add("alpha")
    site.add("beta")
    monkeypatch.setenv("TAPE_DISABLE_BACKENDS", "*")
    with pytest.raises(BackendError) as caught:
        get_backend()
    assert "every installed backend (alpha, beta) is disabled by TAPE_DISABLE_BACKENDS=*" in str(caught.value)


def test_broken_numpy_is_not_replaced_by_another(site):
    site.add("alpha")
    site.add("numpy", plugin={"import NAMElib": "import gone_library"})
    with pytest.raises(BackendLoadError, match="gone_library"):
        get_backend()


# -- TAPE_BACKEND


def test_environment_is_read_at_first_need(site, monkeypatch):
    site.add("alpha")
    site.add("beta")
    monkeypatch.setenv("TAPE_BACKEND", "alpha")
    assert chosen() == ("alpha", None, "TAPE_BACKEND=alpha")
    monkeypatch.setenv("TAPE_BACKEND", "beta")
    assert chosen()[0] == "alpha"


@pytest.mark.parametrize(
    ("value", "error", "message"),
    [
        ("alpa", BackendNotFoundError, "Did you mean 'alpha'?"),
        ("alpha:tpu", BackendError, "no device 'tpu'; its devices are cpu, gpu:0, gpu:1"),
        ("broken", BackendLoadError, "No module named 'gone_library'"),
        ("off", BackendError, "backend 'off' is disabled by TAPE_DISABLE_BACKENDS=off"),
    ],
)
def test_environment_that_cannot_be_met_is_an_error(site, monkeypatch, value, error, message):
    site.add("alpha")
    site.add("broken", plugin={"import NAMElib": "import gone_library"})
    site.add("numpy")
    site.add("off")
    monkeypatch.setenv("TAPE_DISABLE_BACKENDS", "off")
    monkeypatch.setenv("TAPE_BACKEND", value)
    for _ in range(2):
        with pytest.raises(error) as caught:
            get_backend()
        assert message in str(caught.value)
        assert str(caught.value).endswith(f"It was asked for by TAPE_BACKEND={value}")
        assert str(caught.value).count("asked for by") == 1
    assert select("alpha").backend.name == "alpha"


# -- use_backend, set_backend


def test_blocks_nest_and_survive_exceptions(site):
    site.add("alpha")
    site.add("beta")
    site.add("numpy")
    with use_backend("alpha") as outer:
        assert outer is get_backend()
        with suppress(KeyError), use_backend("beta"):
            assert get_backend().name == "beta"
            raise KeyError
        assert get_backend() is outer
    assert get_backend().name == "numpy"


def test_a_block_can_be_entered_again(site):
    site.add("alpha")
    site.add("numpy")
    block = use_backend("alpha")
    with block, use_backend("numpy"):
        with block:
            assert get_backend().name == "alpha"
        assert get_backend().name == "numpy"
    assert get_backend().name == "numpy"
    with block:
        assert get_backend().name == "alpha"


def test_blocks_left_out_of_order(site):
    site.add("alpha")
    site.add("beta")
    site.add("numpy")
    first, second = use_backend("alpha"), use_backend("beta")
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert get_backend().name == "beta"
    second.__exit__(None, None, None)
    second.__exit__(None, None, None)
    assert get_backend().name == "numpy"


def test_decorator(site):
    site.add("alpha")
    site.add("numpy")

    @use_backend("alpha")
    def name() -> str:
        return get_backend().name

    assert (name(), get_backend().name) == ("alpha", "numpy")


def test_a_block_is_of_one_thread_and_set_backend_of_all(site):
    site.add("alpha")
    site.add("beta")
    site.add("numpy")
    names = []
    with use_backend("alpha"):
        for process_wide in (None, "beta"):
            set_backend(process_wide)
            thread = threading.Thread(target=lambda: names.append(get_backend().name))
            thread.start()
            thread.join()
    # Python may be built or told to let threads inherit the context.
    assert names in (["numpy", "beta"], ["alpha", "alpha"])


def test_a_block_is_of_one_asyncio_task(site):
    for name in ("alpha", "beta", "numpy"):
        site.add(name)

    async def work(name: str) -> str:
        with use_backend(name):
            await asyncio.sleep(0)
            return get_backend().name

    async def main() -> list[str]:
        return [*await asyncio.gather(work("alpha"), work("beta")), get_backend().name]

    assert asyncio.run(main()) == ["alpha", "beta", "numpy"]


@pytest.mark.parametrize("function", [use_backend, set_backend, select])
def test_mistakes_raise_at_the_call(site, function):
    site.add("alpha")
    with pytest.raises(BackendNotFoundError, match="no backend named 'beta' is installed"):
        function("beta")
    with pytest.raises(BackendError, match="backend 'alpha' has no device 'tpu'"):
        function("alpha", device="tpu")
    with pytest.raises(BackendError, match="'alpha:gpu:0' names a device, and device='cpu' is"):
        function("alpha:gpu:0", device="cpu")
    with pytest.raises(TypeError, match="backend must be a name or a Backend, not 7"):
        function(7)
    assert chosen() == ("alpha", None, "the only backend installed")


# -- devices


def test_devices(site):
    site.add("alpha")
    assert select("alpha:gpu:1")[1:] == ("gpu:1", "backend='alpha:gpu:1'")
    assert select("alpha", "gpu:1").device == "gpu:1"
    assert select("alpha", "gpu").device == "gpu"
    assert select("alpha").device is None
    assert select(device="gpu:0") == (get_backend(), "gpu:0", "the only backend installed")
    with pytest.raises(BackendError, match="'alpha' has no device 'gpu:2'; its devices are cpu, gpu"):
        select(device="gpu:2")
    with use_backend("alpha:gpu:1"):
        assert select().device == "gpu:1"
        assert select(device="cpu").device == "cpu"
        assert select("alpha").device is None


# -- a Backend, and module:attribute


def test_a_backend_object(site):
    site.add("alpha")
    backend = discovery.load("alpha")
    assert select(backend) == (backend, None, "backend='alpha'")
    with use_backend(backend, "gpu:0"):
        assert chosen() == ("alpha", "gpu:0", "use_backend('alpha', device='gpu:0')")


DEVELOPED = """
from types import SimpleNamespace
from tape_core.backends import Backend

def make():
    return Backend("developed", SimpleNamespace())

class place:
    backend = make()

def fail():
    raise OSError("no driver")

number = 7
"""


@pytest.mark.parametrize("spec", ["developed:make", "developed:place.backend"])
def test_module_attribute(site, monkeypatch, spec):
    site.add("numpy")
    site.write("developed.py", DEVELOPED)
    monkeypatch.setenv("TAPE_BACKEND", spec)
    assert chosen() == ("developed", None, f"TAPE_BACKEND={spec}")
    assert select(spec).backend is select(spec).backend


@pytest.mark.parametrize(
    ("spec", "error", "message"),
    [
        ("developed:number", BackendNotFoundError, "read as module:attribute is 7, not a Backend"),
        ("developed:fail", BackendLoadError, "fail raised OSError('no driver')"),
        ("developed:gone", BackendLoadError, "gone raised AttributeError("),
        ("broken_module:make", BackendLoadError, "importing broken_module raised ModuleNotFound"),
        ("syntax_error:make", BackendLoadError, "importing syntax_error raised SyntaxError"),
        ("numpi:cpu", BackendNotFoundError, "nor is there a module 'numpi'"),
        ("numpi:cpu", BackendNotFoundError, "Did you mean 'numpy'?"),
        ("developed.gone:make", BackendNotFoundError, "developed.gone"),
        ("torch:cuda:0", BackendNotFoundError, "no backend named 'torch' is installed (asked for "),
        ("torch:cuda:0", BackendNotFoundError, install_command("tape-torch")),
    ],
)
def test_module_attribute_mistakes(site, spec, error, message):
    site.add("numpy")
    site.write("developed.py", DEVELOPED)
    site.write("broken_module.py", "import gone_library")
    site.write("syntax_error.py", "1 +")
    with pytest.raises(error) as caught:
        use_backend(spec)
    assert message in str(caught.value)


def test_an_installed_name_is_not_a_module(site):
    site.add("alpha")
    site.write("alpha.py", "raise AssertionError('imported')")
    assert select("alpha:cpu")[:2] == (discovery.load("alpha"), "cpu")


def test_reset(site):
    site.add("alpha")
    site.add("numpy")
    set_backend("alpha")
    selection._reset()
    assert chosen() == ("numpy", None, "numpy is installed")
