"""Programs as text: what they look like, and that the text of each is in the grammar of `tape_compile.printing`."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tape_core as tc
from tape_compile import thresholds
from tape_compile.printing import INDENT
from tape_compile.program import Program
from tape_conformance import check_backend

TOKEN = re.compile(
    r"\s*(?P<value>%\d+)|\s*(?P<number>-?\d+(\.\d+)?(e[+-]?\d+)?)(?![\w.])|\s*(?P<string>'([^'\\]|\\.)*'|\"([^\"\\]|\\.)*\")"
    r"|\s*(?P<text><[^<>]*>)|\s*(?P<name>[^\W\d]\w*(\.[^\W\d]\w*)*)|\s*(?P<sign>\.\.\.|[()\[\],:=!?])"
)


class Reader:
    """Reads the text of a program by the grammar; anything else is a SyntaxError."""

    def __init__(self, text: str) -> None:
        self.lines = text.split("\n")
        self.at = 0
        self.tokens: list[tuple[str, str]] = []

    def program(self, depth: int = 0) -> None:
        self.line(depth, "inputs")
        self.listed(self.typed)
        while self.next_line(depth).startswith("constant "):
            self.line(depth, "constant")
            self.typed()
            self.sign("=")
            self.argument()
            self.end()
        while not re.match(r"outputs( |$)", self.next_line(depth)):
            self.call(depth)
        self.line(depth, "outputs")
        self.listed(lambda: self.take("value"))

    def call(self, depth: int) -> None:
        self.line(depth)
        self.result()
        self.sign("=")
        self.take("name")
        self.maybe("!")
        self.sign("(")
        self.sequence(self.given, ")")
        self.end()
        while self.at < len(self.lines) and self.lines[self.at].startswith(INDENT * (depth + 1)):
            self.line(depth + 1)
            self.take("name")
            self.sign(":")
            self.end()
            self.program(depth + 2)

    # -- parts of a line

    def result(self) -> None:
        if self.peek() == ("name", "_"):
            self.take("name")
        elif self.maybe("("):
            self.sequence(self.result, ")")
        else:
            self.typed()

    def typed(self) -> None:
        self.take("value")
        self.sign(":")
        self.take("name")
        self.sign("[")
        self.sequence(lambda: self.maybe("?") or self.take("number"), "]")

    def given(self) -> None:
        if self.peek()[0] == "name" and self.tokens[1] == ("sign", "="):
            self.take("name")
            self.sign("=")
        self.argument()

    def argument(self) -> None:
        kind, text = self.peek()
        if text == "if_exclusive":
            self.take("name")
            self.take("value")
        elif kind == "name":
            self.take("name")
            if self.maybe("("):
                self.sequence(self.argument, ")")
        elif self.maybe("("):
            self.sequence(self.argument, ")")
        elif self.maybe("["):
            self.sequence(self.argument, "]")
        elif not self.maybe("..."):
            self.take("value", "number", "string", "text")

    def sequence(self, part: Callable[[], object], close: str) -> None:
        while not self.maybe(close):
            part()
            if not self.maybe(","):
                self.sign(close)
                return

    def listed(self, part: Callable[[], object]) -> None:
        while self.tokens:
            part()
            if self.tokens:
                self.sign(",")
        self.end()

    # -- tokens

    def next_line(self, depth: int) -> str:
        return self.lines[self.at].removeprefix(INDENT * depth)

    def line(self, depth: int, word: str = "") -> None:
        line = self.lines[self.at]
        text = line.removeprefix(INDENT * depth)
        assert line == INDENT * depth + text, line
        assert text == text.strip(), line
        self.at += 1
        self.tokens = []
        end = 0
        while end < len(text):
            match = TOKEN.match(text, end)
            if match is None or match.lastgroup is None:
                raise SyntaxError(f"{text[end:]!r} in {text!r}")
            self.tokens.append((match.lastgroup, match[match.lastgroup]))
            end = match.end()
        if word and self.take("name") != word:
            raise SyntaxError(f"{word} is expected: {text!r}")

    def peek(self) -> tuple[str, str]:
        return self.tokens[0] if self.tokens else ("", "")

    def take(self, *kinds: str) -> str:
        kind, text = self.peek()
        if kind not in kinds:
            raise SyntaxError(f"{kinds} is expected before {self.tokens} in {self.lines[self.at - 1]!r}")
        self.tokens.pop(0)
        return text

    def maybe(self, sign: str) -> bool:
        if self.peek() != ("sign", sign):
            return False
        self.tokens.pop(0)
        return True

    def sign(self, sign: str) -> None:
        if not self.maybe(sign):
            raise SyntaxError(f"{sign} is expected before {self.tokens} in {self.lines[self.at - 1]!r}")

    def end(self) -> None:
        if self.tokens:
            raise SyntaxError(f"{self.tokens} are left in {self.lines[self.at - 1]!r}")


def read(program: Program) -> None:
    """Raise a SyntaxError where the text of a program is not in the grammar."""
    reader = Reader(str(program))
    reader.program()
    assert reader.at == len(reader.lines), reader.lines[reader.at :]


def programs(f: Callable[..., Any], *args: Any) -> list[Program]:
    """The program of a function, before and after all passes."""
    compiled = tc.function(f)
    compiled(*args)
    (trace,) = compiled._compiled.all
    return [trace.traced, trace.program]


def array(*shape: int) -> tc.Tensor:
    return tc.asarray(np.ones(shape), backend="numpy")


def test_a_program_is_printed_line_by_line() -> None:
    table = tc.asarray(np.eye(3), backend="numpy")
    _, program = programs(lambda x: tc.sum(tc.exp(x * 2.0) @ table, axis=0, keepdims=True), array(2, 3))
    assert str(program) == (
        "inputs %0: float64[2,3]\n"
        "constant %3: float64[3,3] = ...\n"
        "constant %6: float64[] = 2.0\n"
        "%1: float64[2,3] = multiply(%0, %6)\n"
        "%2: float64[2,3] = exp(%1)\n"
        "%4: float64[2,3] = matmul(%2, %3)\n"
        "%5: float64[1,3] = sum(%4, axis=0, keepdims=True)\n"
        "outputs %5"
    )


def test_parts_of_a_call_are_printed_below_it() -> None:
    def f(x: tc.Tensor, y: tc.Tensor) -> tc.Tensor:
        return tc.cond(tc.sum(x) > 0, lambda: tc.sin(x), lambda: x + y)

    _, program = programs(f, array(3), array(3))
    lines = str(program).splitlines()
    at = next(k for k, line in enumerate(lines) if " = cond(" in line)
    assert [line.strip().partition(" ")[0] for line in lines[at + 1 :] if line.startswith(INDENT)].count("inputs") == 2
    assert "sin(" in "".join(lines[at + 1 : at + 5])
    read(program)


def test_the_representation_of_a_call_is_its_line() -> None:
    program, _ = programs(lambda x: tc.sum(x, axis=0), array(3))
    assert repr(program.instructions[0]) == "%1 = sum(%0, axis=0)"
    assert repr(program) == "<Program of 1 instructions>"


def test_a_program_without_anything_is_in_the_grammar() -> None:
    read(Program([], [], {}, [], {}))


@pytest.mark.parametrize("text", ["inputs\noutput %1", "inputs %0\noutputs", "inputs\n%1: float64[] = f(\noutputs"])
def test_the_reader_refuses_other_texts(text: str) -> None:
    with pytest.raises(SyntaxError):
        Reader(text).program()


def test_arguments_of_each_kind_are_in_the_grammar(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("FUSE_MIN_ELEMENTS", "FUSE_MIN_WORK", "IN_PLACE_MIN_ELEMENTS"):
        monkeypatch.setattr(thresholds, name, 2)
    w = tc.Variable(np.ones((4, 3)))

    def f(x: tc.Tensor) -> Any:
        with tc.GradientTape() as tape:
            y = tc.where(x[:, 1:3] > -math.inf, x[..., None, 1:3][:, 0], tc.nan) * tc.astype(tc.sum(w * x), "float32")
            loss = tc.sum(y) + tc.max(tc.scan(lambda c, r: (c * r, c), x[0], x)[0])
        w.assign_sub(0.1 * tape.gradient(loss, w))
        noise = tc.random.global_rng().normal((3,))
        z = tc.while_loop(lambda a: tc.sum(a) < 10, lambda a: a * 2 + noise * 0, x[0])
        return (
            loss,
            z,
            tc.einsum("ij,ij->i", x, w),
            tc.stack([x, x]),
            tc.top_k(x, 2),
            tc.sqrt(tc.astype(x, "complex128")),
        )

    for program in programs(f, array(4, 3)):
        read(program)


def test_programs_of_all_samples_are_in_the_grammar(monkeypatch: pytest.MonkeyPatch) -> None:
    from tape_compile.codegen import executable

    init, seen = executable.Source.__init__, []

    def noted(self: Any, program: Program, *args: Any, **kwargs: Any) -> None:
        init(self, program, *args, **kwargs)
        if not any(other.instructions == program.instructions for other in seen[-20:]):
            seen.append(program)
            read(program)

    monkeypatch.setattr(executable.Source, "__init__", noted)
    found = check_backend("numpy", only=["t*/compiled/*", "w*/compiled/*"])
    assert found.ok
    assert len(seen) > 100
