"""The user's own code: which frames of the stack belong to it."""

from __future__ import annotations

import re
import sys
import warnings
from types import FrameType

# "contextlib" is among them since its decorators stand between the user and functions of ours.
_OURS = frozenset(
    {
        "tape_core",
        "tape_compile",
        "tape_numpy",
        "tape_torch",
        "tape_jax",
        "tape_nn",
        "tape_tf",
        "tape_autograd",
        "contextlib",
    }
)
# By prefixes of module names: where a kernel or rule runs, and where code asks on behalf of its caller, in between.
_DECIDING = ("tape_core.ops.", "tape_core.modes.batching", "tape_numpy", "tape_torch", "tape_jax")  # kernels and rules
_ASKING = ("tape_core.backends.", "tape_compile.", "tape_core.engine.tensor", "tape_core.engine.variable")
_LAYERS = "tape_nn"
_COMPUTING = frozenset({"statistics"})  # of Python's own modules, which are in no site-packages
_known: dict[str, bool] = {}  # whether a module is ours, by its name


def is_ours(frame: FrameType) -> bool:
    """Return whether a frame runs code of Tape."""
    name = frame.f_globals.get("__name__", "")
    found = _known.get(name)
    if found is None:
        found = _known[name] = _package(frame) in _OURS
    return found


def is_layer(frame: FrameType) -> bool:
    """Return whether a frame belongs to a layer or a loss: code of Tape, but something that users call by name."""
    return _package(frame) == _LAYERS


def _package(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", "")).partition(".")[0]


def user_frame() -> FrameType:
    """Return the innermost frame of the user's code that led here; the outermost of all if none is the user's."""
    frame = sys._getframe(1)
    known = _known
    while True:
        ours = known.get(frame.f_globals.get("__name__", ""))  # without a call: traces ask for each instruction
        if ours is None:
            ours = is_ours(frame)
        back = frame.f_back if ours else None
        if back is None:
            return frame
        frame = back


def library_of(frame: FrameType) -> str | None:
    """Return the package that a frame belongs to if it is another library's code, else None."""
    installed = "site-packages" in frame.f_code.co_filename or "dist-packages" in frame.f_code.co_filename
    package = _package(frame)
    return package if (installed or package in _COMPUTING) and not is_ours(frame) else None


def is_of_user(frame: FrameType) -> bool:
    """Return whether a frame runs code of the user's: neither Tape's nor another library's."""
    return not is_ours(frame) and library_of(frame) is None


def deciding_frame() -> str | None:
    """Return the place where a kernel or a rule of Tape asks for the truth of a value; None if none does.

    Users who call `bool`, and code that asks on their behalf, such as operators of Tensors, do not count.
    """
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and is_ours(frame):
        name = frame.f_globals.get("__name__", "")
        if name.startswith(_DECIDING):
            return f"{frame.f_code.co_qualname} ({name}, line {frame.f_lineno})"
        if not name.startswith(_ASKING):
            return None
        frame = frame.f_back
    return None


def user_frame_past_numpy() -> FrameType:
    """Return :func:`user_frame`, or its caller if NumPy's Python functions stand between it and who called them."""
    first = frame = user_frame()
    while _package(frame) == "numpy":
        if frame.f_back is None:
            return first
        frame = frame.f_back
    return frame


def warn_user(message: str, category: type[Warning] = UserWarning, *, past_numpy: bool = False) -> None:
    """Warn at the line of the user's code that led here; Python shows it once per line."""
    frame, level = sys._getframe(1), 2  # stacklevel 1 is this function, 2 its caller
    while frame.f_back is not None and (is_ours(frame) or (past_numpy and _package(frame) == "numpy")):
        frame, level = frame.f_back, level + 1
    warnings.warn(message, category, stacklevel=level)


# -- warnings of array libraries

# NumPy warns of floating-point errors at the line of Python that called it, which is one of Tape's.
_NUMERICAL = re.compile(
    r"(divide by zero|overflow|underflow|invalid value) encountered|Mean of empty slice|Degrees of freedom <= 0|"
    r"Casting complex values to real"
)
_LIBRARIES = frozenset({"numpy", "scipy", "warnings", "_py_warnings"})  # what may stand between Tape and the warning


class _AtTheUsersLine:
    """A filter of warnings that passes NumPy's on to the user's line, from where they go through all filters again.

    `warnings` asks the filter's pattern whether it matches the text: that is when this runs. So a warning costs a walk
    up the stack, and what computes without one nothing, where a context around each op would cost in every call.
    """

    # Libraries that copy the filters, as scikit-learn does for its workers, ask each for the pattern of a regular
    # expression. In a copy there is nothing to pass on: this pattern matches nothing.
    pattern = "(?!)"

    def match(self, text: str) -> bool:
        """Return whether the warning was passed on, so that it is shown no more where it arose."""
        if _NUMERICAL.match(text) is None:
            return False
        own = sys._getframe()
        frame = own.f_back
        while frame is not None and _package(frame) in _LIBRARIES:
            frame = frame.f_back
        # What this method passes on is asked about again.
        if frame is None or frame.f_code is own.f_code or not is_ours(frame):
            return False
        while frame.f_back is not None and is_ours(frame):
            frame = frame.f_back
        category: type[Warning] = RuntimeWarning
        if text.startswith("Casting"):
            category = sys.modules["numpy"].exceptions.ComplexWarning
        warnings.warn_explicit(
            text,
            category,
            frame.f_code.co_filename,
            frame.f_lineno,
            module=frame.f_globals.get("__name__"),
            registry=frame.f_globals.setdefault("__warningregistry__", {}),
        )
        return True


def attribute_warnings() -> None:
    """Have NumPy's warnings of what Tape computes point at the user's line; filters that users add come before."""
    # The text is looked at first, and decides alone: no module, and any line.
    warnings.filters.insert(0, ("ignore", _AtTheUsersLine(), Warning, None, 0))  # type: ignore[attr-defined]
