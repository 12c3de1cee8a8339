"""Tracebacks show the user's frames and the message; nothing is lost of what arose inside Tape."""

from __future__ import annotations

import linecache
import os
import re
import subprocess
import sys
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tape_core as tc
from tape_core.base import tracebacks
from tape_core.debugging import hide_frames, traceback_text

EMPTY: dict[str, Any] = {}


def _caught(run: Callable[[], object]) -> Exception:
    try:
        run()
    except Exception as error:  # noqa: BLE001 - what is looked at
        return error
    raise AssertionError("nothing was raised")


def _mismatch() -> tc.Tensor:
    return tc.ones((3, 3)) @ tc.ones((4, 5))


@tc.custom_gradient
def _with_bad_rule(x: Any) -> Any:
    def back(g: Any) -> Any:
        return EMPTY["key"]

    return tc.sin(x), back


def _lookup(x: Any) -> Any:
    return EMPTY["mine"]


def _from_mine() -> None:
    try:
        _mismatch()
    except ValueError as error:
        raise RuntimeError("mine") from error


def _warned() -> None:
    with warnings.catch_warnings(), np.errstate(divide="warn"):  # whatever a library has made of NumPy's settings
        warnings.simplefilter("error")
        tc.log(tc.zeros(3, backend="numpy"))


@tc.function
def _picks(x: Any, k: Any) -> Any:
    return (x + 1)[k]


def _in_a_later_call() -> None:
    x = tc.ones(3, backend="numpy")
    _picks(x, tc.asarray(1, backend="numpy"))
    _picks(x, tc.asarray(7, backend="numpy"))


def _while_handling() -> None:
    try:
        _lookup(1)
    except KeyError:
        _mismatch()


FORESEEN: dict[str, tuple[Callable[[], object], list[str]]] = {
    "op": (_mismatch, ["_mismatch"]),
    "index": (lambda: tc.ones(3)[7], ["<lambda>"]),
    "gradient": (lambda: tc.grad(lambda x: tc.sum(_mismatch()))(1.0), ["<lambda>", "<lambda>", "_mismatch"]),
    "rule": (lambda: tc.grad(_with_bad_rule)(tc.ones(())), ["<lambda>", "back"]),
    "vmap": (lambda: tc.vmap(_lookup)(tc.ones(3)), ["<lambda>", "_lookup"]),
    "compiled": (lambda: tc.function(_lookup)(tc.ones(3)), ["<lambda>", "_lookup"]),
    "compiled, in a later call": (_in_a_later_call, ["_in_a_later_call"]),
    "while handling another": (_while_handling, ["_while_handling", "_lookup", "_while_handling", "_mismatch"]),
    "traced value": (lambda: tc.function(lambda x: float(x))(tc.ones(())), ["<lambda>", "<lambda>"]),
    "wrong call": (lambda: tc.grad(lambda x, y: x)(1.0), ["<lambda>"]),  # type: ignore[call-arg]
    "no such name": (lambda: tc.jacobian, ["<lambda>"]),  # type: ignore[attr-defined]
    "argument": (lambda: tc.grad(_lookup, argnums="a"), ["<lambda>"]),  # type: ignore[arg-type]
    "warning as error": (_warned, ["_warned"]),
    "cause": (_from_mine, ["_from_mine", "_mismatch", "_from_mine"]),
}


def _frames(text: str) -> list[str]:
    return [line.rpartition(", in ")[2] for line in text.splitlines() if line.startswith("  File ")]


@pytest.mark.parametrize("case", FORESEEN)
def test_the_users_frames_are_shown_and_the_exception_stays_as_it_is(case: str) -> None:
    run, expected = FORESEEN[case]
    error = _caught(run)
    whole = traceback.format_exception(error)
    text = traceback_text(error)
    assert [frame for frame in _frames(text) if frame != "_caught"] == expected
    assert "tape_core/" not in text.replace("tape_core/tests", "")
    assert str(error) in text
    assert text.count("left out; the environment variable TAPE_TRACEBACK=full shows all") == 1
    assert traceback.format_exception(error) == whole


def test_an_error_of_a_compiled_function_says_which_line_made_the_op() -> None:
    text = traceback_text(_caught(_in_a_later_call))
    assert "getitem(x: float32[3], int64[])" in text
    assert re.search(r"in a compiled function, at test_tracebacks\.py:\d+  return \(x \+ 1\)\[k\]", text)


def test_an_error_of_a_derivative_of_the_users_names_their_function() -> None:
    text = traceback_text(_caught(FORESEEN["rule"][0]))
    assert "in the derivative of custom_gradient(_with_bad_rule)" in text


def test_what_the_user_was_handling_is_shown_and_what_tape_was_is_not() -> None:
    error = _caught(_while_handling)
    text = traceback_text(error)
    assert text.count("During handling of the above exception, another exception occurred") == 1
    assert "KeyError: 'mine'" in text
    assert "gufunc signature" not in text.partition("During handling")[0]
    inner = error.__cause__
    assert inner is not None
    assert inner.__context__ is not None  # as it was


def test_all_frames_are_shown_where_the_environment_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    error = _caught(_mismatch)
    monkeypatch.setenv("TAPE_TRACEBACK", "full")
    assert traceback_text(error) == "".join(traceback.format_exception(error))
    hide_frames(error)
    assert not _marked(error)


def _inside_tape(source: str) -> Callable[..., object]:
    names: dict[str, object] = {"__name__": "tape_core.invented", "tc": tc}
    exec(compile(source, "<tape_core: invented>", "exec"), names)
    return names["f"]  # type: ignore[return-value]


BUGS = {
    "key": "def f(): return {}['key']",
    "attribute": "def f(): return (1).nope",
    "attribute of Tape's": "def f(): return tc.nope",
    "as a cause": """
def g(): return {}['key']
def f():
    try: g()
    except KeyError as error: raise ValueError('converted') from error
""",
}


@pytest.mark.parametrize("case", BUGS)
def test_an_error_that_arose_inside_tape_is_shown_whole_and_tape_says_that_it_is_its_fault(case: str) -> None:
    error = _caught(_inside_tape(BUGS[case]))
    text = traceback_text(error)
    assert "invented" in text
    assert len(_frames(text)) == len(_frames("".join(traceback.format_exception(error))))
    assert "arose inside Tape" in text
    hide_frames(error)
    assert not _marked(error)


def test_an_assertion_of_tapes_is_a_fault_of_tapes_and_one_that_it_raises_for_the_user_is_not() -> None:
    def shown(line: str) -> str:
        source = f"def f():\n    {line}\n"
        f = _inside_tape(source)
        linecache.cache["<tape_core: invented>"] = (len(source), None, source.splitlines(True), "<tape_core: invented>")
        try:
            return traceback_text(_caught(f))
        finally:
            del linecache.cache["<tape_core: invented>"]

    assert "arose inside Tape" in shown("assert False, 'x'")
    assert "left out" in shown("raise AssertionError('x')")


def test_a_function_of_the_users_that_tape_holds_and_that_takes_other_arguments_is_no_fault_of_tapes() -> None:
    names: dict[str, Any] = {"__name__": "tape_core.invented"}
    exec("class Loss:\n    def __call__(self): return self.function(1)\ndef unknown(f): return f[0](1)\n", names)
    loss = names["Loss"]()
    loss.function = lambda x, y: x
    assert "left out" in traceback_text(_caught(loss))
    text = traceback_text(_caught(lambda: names["unknown"]([loss.function])))
    assert "arose inside Tape" not in text
    assert "unknown" in text


@pytest.mark.parametrize("line", ["open('/no/such/file')", "import json; json.loads('{')"])
def test_an_error_of_a_library_or_the_system_below_tape_is_shown_whole_without_blame(line: str) -> None:
    text = traceback_text(_caught(_inside_tape(f"def f():\n    {line}\n")))
    assert "invented" in text
    assert "arose inside Tape" not in text
    assert "left out" not in text


def test_an_error_without_tape_is_shown_as_python_does() -> None:
    error = _caught(lambda: _lookup(tc.ones(())))
    assert traceback_text(error) == "".join(traceback.format_exception(error))


def test_errors_of_a_group_are_filtered_too() -> None:
    def group() -> None:
        raise ExceptionGroup("two", [_caught(_mismatch), ValueError("plain")])

    text = traceback_text(_caught(group))
    assert "call_paths.py" not in text
    assert "in _mismatch" in text


def _marked(error: BaseException) -> list[str]:
    return [
        frame.f_code.co_name
        for frame, _ in traceback.walk_tb(error.__traceback__)
        if frame.f_locals.get("__tracebackhide__")
    ]


def test_frames_can_be_hidden_from_pytest() -> None:
    error = _caught(_mismatch)
    hide_frames(error)
    assert _marked(error)[-1] == "fail"
    assert "_mismatch" not in _marked(error)


PROGRAM = """
import sys, threading
{first}
import tape_core as tc
def mine(): return tc.ones(3) @ tc.ones(4)
thread = threading.Thread(target=mine)
thread.start()
thread.join()
print("--", file=sys.stderr, flush=True)
mine()
"""


def _errors_of(first: str = "", *options: str) -> list[str]:
    """Return what a program that fails in a thread, then in the main one, writes of each."""
    done = subprocess.run(
        [sys.executable, *options, "-c", PROGRAM.format(first=first)], input="", capture_output=True,
        encoding="utf-8", timeout=120, check=False,
    )  # fmt: skip
    assert options or done.returncode == 1
    return done.stderr.split("--\n")


def test_scripts_and_threads_show_the_users_frames() -> None:
    for text in _errors_of():
        assert _frames(text)[-1] == "mine"
        assert "call_paths.py" not in text
        assert "matmul(x1: float32[3], x2: float32[4])" in text
        assert text.count("left out") == 1


def test_hooks_of_others_see_all_frames() -> None:
    first = """
import traceback
def theirs(kind, error, tb): print("theirs", "".join(traceback.format_tb(tb)), file=sys.stderr)
sys.excepthook = theirs
threading.excepthook = lambda args: theirs(args.exc_type, args.exc_value, args.exc_traceback)
"""
    for text in _errors_of(first):
        assert text.lstrip().startswith("theirs")
        assert "call_paths.py" in text


def test_an_error_is_shown_even_if_filtering_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError

    monkeypatch.setattr(tracebacks, "_Plan", broken)
    error = _caught(_mismatch)
    assert traceback_text(error) == "".join(traceback.format_exception(error))


IN_IPYTHON = """
import sys, traceback
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance()
shell.run_line_magic("colors", "nocolor" if "nocolor" in sys.argv else "NoColor")
shell.run_cell("import tape_core as tc")
done = shell.run_cell("tc.ones(3) @ tc.ones(4)")
print("==")
print(len([*traceback.walk_tb(sys.last_traceback)]) > 2, done.error_in_exec.__cause__ is not None)
"""


def test_ipython_shows_the_users_cell_and_its_debugger_has_all_frames(tmp_path: Path) -> None:
    pytest.importorskip("IPython")
    done = subprocess.run(
        [sys.executable, "-c", IN_IPYTHON], capture_output=True, encoding="utf-8", timeout=240, check=True,
        env={**os.environ, "IPYTHONDIR": str(tmp_path)},
    )  # fmt: skip
    shown, facts = done.stdout.split("==\n")
    assert "tc.ones(3) @ tc.ones(4)" in shown
    assert "call_paths.py" not in shown
    assert "left out" in shown
    assert facts.split() == ["True", "True"]
