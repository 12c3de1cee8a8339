"""Finding and loading plugins, and what is said of those that cannot be loaded."""

from __future__ import annotations

import pickle
import sys
import threading
from collections import OrderedDict
from types import SimpleNamespace

import array_api_strict
import pytest
from pluggy import PluginValidationError
from support import run_python
from tape_core import __version__
from tape_core.backends import (
    ArrayAPIBackend,
    Backend,
    BackendError,
    BackendLoadError,
    BackendNotFoundError,
    discovery,
    install_command,
)
from tape_core.backends.errors import load_error, not_found
from tape_core.backends.versions import satisfies
from tape_core.engine import op

CALLS = "import BackendInfo, hookimpl\ncalls = []\nfrom tape_core.backends import BackendInfo"
"""Put into a plugin in place of `import BackendInfo`, gives it a list named calls."""


def imported(*names: str) -> list[str]:
    return [name for name in names if name in sys.modules]


# -- the good case


def test_finding_imports_nothing(site):
    site.add("alpha")
    site.add("beta", plugin={"BackendInfo(": "syntax error"})
    assert list(discovery.installed()) == ["alpha", "beta"]
    assert discovery.installed()["alpha"].distribution == "tape-alpha 1.5"
    assert not imported("plugin_alpha", "plugin_beta")


def test_info_does_not_import_the_array_library(site):
    site.add("alpha")
    assert discovery.info("alpha").array_types == ("alphalib:Array",)
    assert imported("plugin_alpha", "alphalib") == ["plugin_alpha"]


def test_load(site):
    site.add("alpha")
    backend = discovery.load("alpha")
    assert isinstance(backend, Backend)
    assert (backend.name, backend.version) == ("alpha", "3.1")
    assert discovery.load("alpha") is backend


def test_the_version_of_a_namespace_without_one_is_that_of_the_package_of_its_arrays():
    namespace = SimpleNamespace(asarray=array_api_strict.asarray, empty=array_api_strict.empty)
    assert ArrayAPIBackend("part", namespace).version == array_api_strict.__version__
    assert Backend("nowhere", namespace).version == "unknown"


def test_a_package_installed_meanwhile_is_found(site):
    assert not discovery.installed()
    site.add("alpha")
    assert discovery.load("alpha").name == "alpha"


def test_threads_load_once(site):
    slow = "import time; time.sleep(0.05); calls.append(0)\n    import NAMElib"
    site.add("alpha", plugin={"import NAMElib": slow, "import BackendInfo": CALLS})
    barrier, backends = threading.Barrier(6), []

    def load() -> None:
        barrier.wait()
        backends.append(discovery.load("alpha"))

    threads = [threading.Thread(target=load) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(backends) == 6
    assert sys.modules["plugin_alpha"].calls == [0]


def test_trace(site, monkeypatch, capsys):
    site.add("alpha")
    discovery.load("alpha")
    assert capsys.readouterr().err == ""

    monkeypatch.setenv("TAPE_TRACE_PLUGINS", "1")
    discovery._reset()
    site.add("beta", plugin={"import NAMElib": "raise OSError"})
    discovery.load("alpha")
    with pytest.raises(BackendLoadError):
        discovery.load("beta")
    trace = capsys.readouterr().err
    assert "tape: found backends alpha, beta (" in trace
    assert "tape: alpha: importing plugin_alpha: ok (" in trace
    assert "tape: alpha: tape_load_backend(): ok (" in trace
    assert "tape: beta: tape_load_backend(): failed (" in trace


def test_importing_core_and_finding_numpy_import_no_array_library():
    if "numpy" not in discovery.installed():
        pytest.skip("tape-numpy is not installed")
    code = """
import sys
import tape_core
from tape_core.backends import discovery
assert discovery.info("numpy").name == "numpy"
assert "numpy" not in sys.modules
assert discovery.load("numpy").name == "numpy"
"""
    run_python("-c", code)


# -- names


@pytest.mark.parametrize(
    ("name", "installed", "lines"),
    [
        (
            "torch",
            ["numpy"],
            ["To install it: " + install_command("tape-torch"), "Installed backends: numpy"],
        ),
        ("alpah", ["alpha", "beta"], ["Did you mean 'alpha'?", "Installed backends: alpha, beta"]),
        (
            "nunpy",
            [],
            [
                "Did you mean 'numpy'?",
                "To install it: " + install_command("tape-numpy"),
                "Installed backends: none",
            ],
        ),
        ("jax", ["numpy"], ["To install it: " + install_command("tape-jax"), "Installed backends: numpy"]),
        ("zig", ["numpy"], ["Installed backends: numpy"]),
    ],
)
def test_unknown_name(name, installed, lines):
    first, *others = str(not_found(name, installed)).split("\n  ")
    assert first == f"no backend named {name!r} is installed"
    assert others == lines


def test_unknown_name_is_raised_by_load_and_info(site):
    site.add("alpha")
    for function in (discovery.load, discovery.info):
        with pytest.raises(BackendNotFoundError, match="Did you mean 'alpha'"):
            function("alpa")


@pytest.mark.parametrize("value", ["alpha,beta", " beta , alpha ", "*"])
def test_disabled(site, monkeypatch, value):
    site.add("alpha")
    site.add("beta")
    site.add("gamma")
    monkeypatch.setenv("TAPE_DISABLE_BACKENDS", value)
    with pytest.raises(BackendError) as caught:
        discovery.load("alpha")
    others = "none" if value == "*" else "gamma"
    message = str(caught.value)
    assert f"backend 'alpha' is disabled by TAPE_DISABLE_BACKENDS={value}\n" in message
    assert message.endswith(f"Enabled backends: {others}")
    assert discovery.installed()["alpha"].disabled
    assert not imported("plugin_alpha")
    if value != "*":
        assert discovery.load("gamma").name == "gamma"


def test_two_packages_of_one_name(site):
    site.add("alpha")
    site.add("alpha", distribution="rival")
    site.write("rival-1.5.dist-info/entry_points.txt", "[tape.backends]\nalpha = rival_module\n")
    site.add("beta")
    with pytest.raises(BackendLoadError) as caught:
        discovery.load("alpha")
    message = str(caught.value)
    assert message.startswith("backend 'alpha' cannot be loaded: several packages claim its name: ")
    assert "tape-alpha 1.5" in message
    assert "rival 1.5" in message
    assert "Uninstall all but one of them" in message
    assert discovery.load("beta").name == "beta"
    assert discovery.backend_of_type(sys.modules["betalib"].Array).name == "beta"


# -- broken plugins

RETURN = "return BackendInfo("
BROKEN = {
    "import": (
        {"from tape_core.backends import": "import gone\nfrom tape_core.backends import"},
        "importing plugin_alpha raised ModuleNotFoundError: No module named 'gone'",
        ModuleNotFoundError,
    ),
    "import of a name": (
        {"import BackendInfo,": "import BackendInfo, of_the_future,"},
        "importing plugin_alpha raised ImportError: cannot import name 'of_the_future'",
        ImportError,
    ),
    "misspelled hook": (
        {"def tape_load_backend": "def tape_lode_backend"},
        "checking its hooks raised PluginValidationError: unknown hook 'tape_lode_backend'",
        PluginValidationError,
    ),
    "hook arguments": (
        {"tape_load_backend()": "tape_load_backend(device)"},
        "Argument(s) {'device'} are declared in the hookimpl but can not be found in the hookspec",
        PluginValidationError,
    ),
    "missing hook": (
        {"def tape_load_backend": "def _f", "@hookimpl\ndef _f": "def _f"},
        "plugin_alpha has no tape_load_backend",
        None,
    ),
    "unmarked hook": (
        {"@hookimpl\ndef tape_backend_info": "def tape_backend_info"},
        "plugin_alpha has no tape_backend_info marked with @hookimpl",
        None,
    ),
    "info raises": (
        {RETURN: f"1 / 0\n    {RETURN}"},
        "tape_backend_info() raised ZeroDivisionError: division by zero",
        ZeroDivisionError,
    ),
    "info of a later contract": (
        {"contract=1": "contract=1, colour='red'"},
        "tape_backend_info() raised TypeError",
        TypeError,
    ),
    "no info": (
        {RETURN: "return dict("},
        "tape_backend_info() returned {'name': 'alpha'",
        None,
    ),
    "contract": (
        {"contract=1": "contract=7"},
        "it is written to version 7 of the backend contract, and tape-core ",
        None,
    ),
    "name": (
        {'name="NAME"': 'name="omega"'},
        "it calls itself 'omega', but its entry point is named 'alpha'",
        None,
    ),
    "no array types": (
        {'("NAMElib:Array",)': "()"},
        "array_types must be a tuple of 'module:qualname' strings, not ()",
        None,
    ),
    "array types a string": (
        {'("NAMElib:Array",)': '"NAMElib:Array"'},
        "array_types must be a tuple of 'module:qualname' strings, not 'alphalib:Array'",
        None,
    ),
    "array type": (
        {'"NAMElib:Array"': '"NAMElib.Array"'},
        "array_types has 'alphalib.Array', which is not 'module:qualname'",
        None,
    ),
    "missing library": (
        {"import NAMElib": "import gone_library"},
        "tape_load_backend() raised ModuleNotFoundError: No module named 'gone_library'",
        ModuleNotFoundError,
    ),
    "load exits": (
        {"import NAMElib": "raise SystemExit(3)"},
        "tape_load_backend() raised SystemExit: 3",
        SystemExit,
    ),
    "load raises": (
        {"import NAMElib": "raise OSError('libgone.so:\\n not found')"},
        "tape_load_backend() raised OSError: libgone.so: not found",
        OSError,
    ),
    "no backend": (
        {"return NAMElib.backend": "return 7"},
        "tape_load_backend() returned 7, not a Backend",
        None,
    ),
}


@pytest.mark.parametrize("case", BROKEN)
def test_broken_plugin(site, case):
    changes, problem, cause = BROKEN[case]
    site.add("alpha", plugin=changes)
    site.add("beta")
    with pytest.raises(BackendLoadError) as caught:
        discovery.load("alpha")
    error = caught.value
    assert str(error).startswith("backend 'alpha' (tape-alpha 1.5, entry point plugin_alpha) cannot be loaded: ")
    assert problem in str(error).splitlines()[0]
    assert problem in error.problem
    assert type(error.__cause__) is (cause or type(None))
    assert discovery.load("beta").name == "beta"


def test_what_to_do_about_it(site):
    def hints(name: str, **broken) -> list[str]:
        site.add(name, **broken)
        with pytest.raises(BackendLoadError) as caught:
            discovery.load(name)
        return str(caught.value).split("\n  ")[1:]

    assert hints("alpha", plugin={"import NAMElib": "import gone_library"}) == [
        "To install what it needs: pip install alphalib"
    ]
    assert hints("beta", plugin={"contract=1": "contract=7"}) == [
        "Install a newer tape-core: pip install --upgrade tape-core",
        'or an older tape-beta: pip install "tape-beta<1.5"',
    ]
    assert hints("gamma", plugin={"def tape_load_backend": "def tape_lode_backend"}) == [
        "The hooks are tape_backend_info, tape_load_backend, tape_register_rules"
    ]


def test_backend_of_another_name(site):
    site.add("alpha", library={'"NAME"': '"omega"'})
    with pytest.raises(BackendLoadError, match="its backend is named 'omega', not 'alpha'"):
        discovery.load("alpha")


def test_a_mended_plugin_loads(site):
    site.add("alpha", plugin={"import NAMElib": "import late\n    import NAMElib"})
    with pytest.raises(BackendLoadError, match="No module named 'late'"):
        discovery.load("alpha")
    site.write("late.py", "")
    assert discovery.load("alpha").name == "alpha"


def test_requirement_on_core(site):
    site.add("alpha", requires="Tape_Core[extra]>=77,<78")
    with pytest.raises(BackendLoadError) as caught:
        discovery.load("alpha")
    version = __version__
    assert f"it requires Tape_Core[extra]>=77,<78, and this is tape-core {version}" in str(caught.value)
    assert "pip install --upgrade tape-core tape-alpha" in str(caught.value)
    assert 'pip install "Tape_Core[extra]>=77,<78"' in str(caught.value)
    assert not imported("plugin_alpha")


@pytest.mark.parametrize(
    "requires",
    ["tape-core", "tape-core>=0.0.1", "tape-core>=77; extra == 'future'", "tape-core-extras>=77"],
)
def test_requirement_that_holds(site, requires):
    site.add("alpha", requires=requires)
    assert discovery.load("alpha").name == "alpha"


@pytest.mark.parametrize(
    ("clauses", "admits"),
    [
        ("", ["0", "1.2", "1.2.0", "1.10.3", "2.0", "99.0"]),
        (">=1.2,<2", ["1.2", "1.2.0", "1.10.3"]),
        ("(>=1.2, !=1.10.3)", ["1.2", "1.2.0", "2.0", "99.0"]),
        ("==1.2", ["1.2", "1.2.0"]),
        ("==1.*", ["1.2", "1.2.0", "1.10.3"]),
        ("!=1.2.*", ["0", "1.10.3", "2.0", "99.0"]),
        ("~=1.2", ["1.2", "1.2.0", "1.10.3"]),
        ("~=1.2.0", ["1.2", "1.2.0"]),
        (">1.2,<=2", ["1.10.3", "2.0"]),
    ],
)
def test_version_clauses(clauses, admits):
    versions = ["0", "1.2", "1.2.0", "1.10.3", "2.0", "99.0"]
    assert [v for v in versions if satisfies(v, f"tape-core{clauses}")] == admits


def test_errors_can_be_pickled():
    error = pickle.loads(pickle.dumps(load_error("backend 'a'", "why", "what to do")))
    assert (str(error), error.problem) == ("backend 'a' cannot be loaded: why\n  what to do", "why")


# -- rules

RULES = """
calls = []

@hookimpl
def tape_register_rules(registry):
    from tape_core.backends import discovery
    calls.append((registry, discovery.load("alpha")))
"""


def test_rules_are_registered_once_with_the_op_registry(site):
    site.add("alpha", plugin={"return NAMElib.backend\n": f"return NAMElib.backend\n{RULES}"})
    backend = discovery.load("alpha")
    assert discovery.load("alpha") is backend
    ((registry, backend_then),) = sys.modules["plugin_alpha"].calls
    assert registry is op.registry
    assert backend_then is backend


def test_failed_rules_are_not_tried_again(site):
    rules = RULES + "    raise KeyError('no op')\n"
    site.add("alpha", plugin={"return NAMElib.backend\n": f"return NAMElib.backend\n{rules}"})
    for _ in range(2):
        with pytest.raises(BackendLoadError) as caught:
            discovery.load("alpha")
        assert caught.value.problem == "tape_register_rules() raised KeyError: 'no op'"
        assert isinstance(caught.value.__cause__, KeyError)
    assert len(sys.modules["plugin_alpha"].calls) == 1


# -- whose array


def array_class(module: str, qualname: str = "Array", *bases: type) -> type:
    return type(qualname, bases, {"__module__": module})


def test_backend_of_type(site):
    site.add("alpha")
    site.add("beta")
    owner = discovery.backend_of_type
    assert owner(array_class("alphalib")).name == "alpha"
    assert imported("plugin_alpha", "plugin_beta") == ["plugin_alpha", "plugin_beta"]
    assert imported("alphalib", "betalib") == ["alphalib"]
    assert owner(array_class("betalib.core")).name == "beta"
    assert owner(array_class("user", "Mine", array_class("alphalib"))).name == "alpha"
    for other in (
        array_class("alphalibrary"),
        array_class("alphalib", "Index"),
        OrderedDict,
        float,
        object,
    ):
        assert owner(other) is None


def test_backend_of_type_is_remembered(site, monkeypatch):
    site.add("alpha")
    known, unknown = array_class("alphalib"), array_class("nolib")
    assert discovery.backend_of_type(known).name == "alpha"
    assert discovery.backend_of_type(unknown) is None
    monkeypatch.setattr(discovery, "_owner", None)
    assert discovery.backend_of_type(known).name == "alpha"
    assert discovery.backend_of_type(unknown) is None


def test_a_plugin_installed_meanwhile_owns_its_arrays(site):
    known = array_class("alphalib")
    assert discovery.backend_of_type(known) is None
    site.add("alpha")
    discovery.load("alpha")
    assert discovery.backend_of_type(known).name == "alpha"


def test_broken_and_disabled_plugins_are_passed_over(site, monkeypatch):
    monkeypatch.setenv("TAPE_DISABLE_BACKENDS", "gamma")
    site.add("alpha", plugin={"from tape_core": "from gone"})
    site.add("beta")
    site.add("gamma")
    assert discovery.backend_of_type(array_class("betalib")).name == "beta"
    assert discovery.backend_of_type(array_class("alphalib")) is None
    assert discovery.backend_of_type(array_class("gammalib")) is None
    assert not imported("plugin_gamma")
    disabled, broken = discovery.unusable().splitlines()
    assert disabled.startswith("backend 'gamma' (tape-gamma 1.5")
    assert disabled.endswith("is disabled")
    assert "backend 'alpha' (tape-alpha 1.5" in broken
    assert "No module named 'gone'" in broken


def test_the_owner_cannot_be_loaded(site):
    site.add("alpha", plugin={"import NAMElib": "raise OSError('no driver')"})
    with pytest.raises(BackendLoadError, match="no driver"):
        discovery.backend_of_type(array_class("alphalib"))


def test_two_backends_claim_a_type(site):
    site.add("alpha")
    site.add("beta", plugin={"NAMElib:Array": "alphalib:Array"})
    with pytest.raises(BackendError) as caught:
        discovery.backend_of_type(array_class("alphalib"))
    assert "arrays of type alphalib.Array are claimed by several backends: alpha, beta" in str(caught.value)
    assert "TAPE_DISABLE_BACKENDS=beta" in str(caught.value)


def test_the_backend_named_after_the_library_owns_its_arrays(site):
    site.add("alpha", plugin={"NAMElib:Array": "beta:Array"})
    site.add("beta", plugin={"NAMElib:Array": "beta:Array"})
    assert discovery.backend_of_type(array_class("beta")).name == "beta"


def test_numpy_arrays_belong_to_numpy():
    if "numpy" not in discovery.enabled():
        pytest.skip("tape-numpy is not installed")
    import numpy as np

    backend = discovery.load("numpy")
    assert backend.version == np.__version__
    for kind in (np.ndarray, np.float32, np.bool_, np.ma.MaskedArray):
        assert discovery.backend_of_type(kind) is backend
