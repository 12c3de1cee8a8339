"""The documents that the project grew from run as they stand, and give the output that they print.

They are tutorials and the reference of TensorFlow's GradientTape. The code is taken from the documents here, and only
`import tensorflow as tf` is replaced. They do not belong to the repository: they are read from `shared/seeds` beside or
in the checkout, or from the folder that `TAPE_SEEDS` names; without them these tests are skipped.

Some documents came without their line breaks or indentation. `statements` finds the lines again, by trying where a
statement can end, and `nested` the blocks, by a few rules on what a block's code can be about.
"""

from __future__ import annotations

import ast
import contextlib
import io
import logging
import os
import re
import sys
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tape_tf as tf

ROOT = Path(__file__).parents[3]
FOLDERS = [ROOT.parent / "shared" / "seeds", ROOT / "shared" / "seeds"]
SEEDS = Path(os.environ.get("TAPE_SEEDS") or next((path for path in FOLDERS if path.is_dir()), FOLDERS[0]))

# How many blocks of code each document has, and how many of them show an output.
DOCUMENTS = {"000": (2, 2), "001": (15, 13), "002": (5, 0), "003": (18, 11), "004": (10, 0)}


# -- finding the statements


def parsed(code: str) -> ast.stmt | None:
    """Parse `code` as one statement; return None if it is none. The head of a block counts without its body."""
    try:
        body = ast.parse(f"{code} pass" if code.endswith(":") else code).body
    except SyntaxError:
        return None
    return body[0] if len(body) == 1 and is_written_by_programmers(body[0]) else None


def is_written_by_programmers(statement: ast.stmt) -> bool:
    """Return False for words of a text, such as `x` or `non-trainable`, and for printed tensors, which parse, too."""
    if isinstance(statement, ast.AnnAssign):
        return statement.value is not None
    if not isinstance(statement, ast.Expr):
        return not isinstance(statement, ast.Pass)
    value = statement.value
    if isinstance(value, ast.Constant):
        return isinstance(value.value, str)
    return isinstance(value, ast.Call) and ast.unparse(value.func) != "tf.Tensor"


GLUED = r"[A-Z][\w ']*:"


def ends(text: str, start: int) -> Iterator[int]:
    """Yield where a statement from `start` on may end: at a space, or where a sentence is glued to a bracket."""
    for match in re.finditer(rf"(?<=[)a-z])(?={GLUED})|\s|$", text[start:]):
        if match.start():
            yield start + match.start()


def statements(text: str) -> tuple[list[str], str] | None:
    """Return the statements on a line, and the text that is glued to them; None if the line is not code."""

    @cache
    def read(start: int) -> tuple[tuple[str, ...], str] | None:
        rest = text[start:]
        start += len(rest) - len(rest.lstrip())
        if start == len(text):
            return (), ""
        for end in ends(text, start):
            glued = re.match(GLUED, text[end:])
            if text[start] == "#":  # a comment goes on until the code does
                after = ((), text[end:]) if glued else read(end)
                if after and any(after):
                    return after
            elif parsed(text[start:end]) and (text[start:end] != "return" or end == len(text)):
                after = ((), text[end:]) if glued else read(end)
                if after:
                    return (text[start:end], *after[0]), after[1]
        return ((), "") if text[start] == "#" else None

    found = read(0)
    return found and (list(found[0]), found[1])


# -- finding the blocks


def names(statement: ast.AST) -> set[str]:
    return {node.id for node in ast.walk(statement) if isinstance(node, ast.Name)}


def assigned(statement: ast.AST) -> set[str]:
    return {node.id for node in ast.walk(statement) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}


def is_gradient(statement: ast.stmt, tapes: set[str]) -> bool:
    calls = [node.func for node in ast.walk(statement) if isinstance(node, ast.Call)]
    return any(ast.unparse(call) in {f"{tape}.gradient" for tape in tapes} for call in calls)


def nested(lines: list[str]) -> list[ast.stmt]:
    """Indent statements whose indentation is lost: they belong to the block whose variable they use.

    A tape's block ends where it is asked for a gradient, a function's at its return, a class's after its methods, an
    if's after one statement, and a loop's where the names it binds are no longer used.
    """
    position = 0

    def suite(belongs: Callable[[ast.stmt, int], bool]) -> list[ast.stmt]:
        nonlocal position
        body: list[ast.stmt] = []
        while position < len(lines):
            statement = parsed(lines[position])
            assert statement is not None
            if not belongs(statement, len(body)):
                break
            position += 1
            if lines[position - 1].endswith(":"):
                statement.body = suite(rule(statement)) or ast.parse("computations()").body  # type: ignore[attr-defined]
            body.append(statement)
        return body

    def rule(head: ast.stmt) -> Callable[[ast.stmt, int], bool]:
        if isinstance(head, ast.With):
            return lambda statement, count: not is_gradient(statement, assigned(head))
        if isinstance(head, ast.ClassDef):
            return lambda statement, count: isinstance(statement, ast.FunctionDef)
        if isinstance(head, ast.FunctionDef):
            stops = [i for i in range(position, len(lines)) if lines[i].startswith(("return", "def ", "class "))]
            last = stops[0] + lines[stops[0]].startswith("return") if stops else len(lines)
            return lambda statement, count: position < last
        if isinstance(head, ast.For):
            bound = set[str]().union(*(assigned(parsed(line) or head) for line in lines[position:])) | assigned(head)
            bound -= set[str]().union(*(assigned(parsed(line) or head) for line in lines[: position - 1]))
            using = [i for i, line in enumerate(lines) if names(parsed(line) or head) & bound]
            return lambda statement, count: position <= max(using)
        return lambda statement, count: count == 0

    return suite(lambda statement, count: True)


# -- finding the code in a document


@dataclass
class Block:
    body: list[ast.stmt]
    source: str
    output: str = ""  # in the document
    is_cell: bool = False  # of a notebook, which shows the value of an expression
    printed: str = ""
    shown: list[Any] = field(default_factory=list)  # the values of its expression statements
    after: dict[str, Any] = field(default_factory=dict)  # all names once it has run


def block(lines: list[str]) -> Block | None:
    """Make a block of a document from its lines; return None for one like `dtype=tf.float32`, which is text."""
    found = [(statements(line) or ([], ""))[0] for line in lines]
    source = "\n".join(lines)
    try:
        body = ast.parse(textwrap.dedent(source)).body
    except SyntaxError:
        body = []
    if not body or max(map(len, found)) > 1:
        body = nested([statement for line in found for statement in line])
    calls = any(isinstance(node, ast.Call) for statement in body for node in ast.walk(statement))
    if calls and any(not isinstance(statement, ast.Expr) for statement in body):
        return Block(body, source)
    return None


OUTPUT = re.compile(r"tf\.Tensor\(|<tf\.Variable|None$|RuntimeError: ")


def blocks_of_a_page(text: str) -> list[Block]:
    """Return the blocks: lines of code, and as output the first line after them that Python could have printed."""
    found: list[Block] = []
    lines, run = [*text.splitlines(), "."], list[str]()
    waiting = False
    for number, line in enumerate(lines):
        code = statements(line)
        if code:
            run.append(line)
        if (not code or code[1]) and run:
            whole = block(run)
            run = []
            if whole:
                found.append(whole)
                waiting = "print(" in whole.source
        if waiting and line == "Output:":
            found[-1].output = "\n".join(lines[number + 1 :]).strip().split("\n\n\n")[0]
            waiting = False
        elif waiting and not code and OUTPUT.match(line):
            found[-1].output, waiting = line, False
    return found


def effects(body: list[ast.stmt]) -> int:
    """Count the statements that do something; printed arrays and `y: 4.0` parse as statements that do not."""
    found = [node for statement in body for node in ast.walk(statement) if isinstance(node, ast.stmt)]
    return sum(not isinstance(node, ast.Expr) and is_written_by_programmers(node) for node in found)


def blocks_of_a_notebook(text: str) -> list[Block]:
    """Return the cells: code continues after an empty line if code follows, and output until the next heading."""
    found = []
    for cell in re.split(r"^In \[\d+\]:\n", text, flags=re.MULTILINE)[1:]:
        code, *rest = re.split(r"\n\s*\n", cell.strip("\n"))
        while rest:
            try:
                body = ast.parse(f"{code}\n\n{rest[0]}").body
            except SyntaxError:
                break
            if effects(body) == effects(ast.parse(code).body):
                break
            code = f"{code}\n\n{rest.pop(0)}"
        output = []
        while rest and not rest[0].startswith("#"):
            output.append(rest.pop(0))
        found.append(Block(ast.parse(code).body, code, "\n".join(output), is_cell=True))
    return found


def blocks(name: str) -> list[Block]:
    if not SEEDS.is_dir():
        pytest.skip("the documents are not here: shared/seeds, or the folder that TAPE_SEEDS names")
    (path,) = SEEDS.glob(f"{name}_*.txt")
    text = path.read_text(encoding="utf-8").replace("\N{NO-BREAK SPACE}", " ")
    return blocks_of_a_notebook(text) if "\nIn [1]:\n" in f"\n{text}" else blocks_of_a_page(text)


# -- running it


class Placeholders(ast.NodeTransformer):
    """Fill in what a document leaves out as `...`: `loss = computations()`, which the test defines, or `sources`."""

    def visit_Assign(self, node: ast.Assign) -> ast.stmt:
        if isinstance(node.value, ast.Constant) and node.value.value is ...:
            node.value = ast.Call(ast.Name("computations", ast.Load()), [], [])
        return self.generic_visit(node)  # type: ignore[return-value]

    def visit_Constant(self, node: ast.Constant) -> ast.expr:
        return ast.Name("sources", ast.Load()) if node.value is ... else node

    def visit_Import(self, node: ast.Import) -> ast.stmt:
        for alias in node.names:
            alias.name = {"tensorflow": "tape_tf"}.get(alias.name, alias.name)
        return node


def run(block: Block, namespace: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> str:
    """Run a block as a notebook does; return the text that it prints and logs, and the error that it raises."""
    out = io.StringIO()

    @np.printoptions(legacy="1.25")  # scalars without their type, as the documents show them
    def show(value: Any) -> None:
        if value is not None:
            block.shown.append(value)
            out.write(f"{value!r}\n" if block.is_cell else "")

    monkeypatch.setattr(sys, "displayhook", show)
    monkeypatch.setattr(logging.getLogger(), "handlers", [])  # pytest's; with them it writes nothing
    tree = ast.fix_missing_locations(Placeholders().visit(ast.Interactive(block.body)))
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
        try:
            exec(compile(tree, "<seed>", "single"), namespace)
        except RuntimeError as error:
            out.write(f"{type(error).__name__}: {error}\n")
    return out.getvalue()


TOKEN = re.compile(r"-?\d+\.?\d*(?:e[-+]?\d+)?|\w+|[^\w\s]")


def same(expected: str, actual: str) -> None:
    """Return whether two outputs are equal, token by token, and numbers up to the rounding of float32."""
    left, right = TOKEN.findall(expected), TOKEN.findall(actual)
    message = f"the document prints:\n{expected}\nbut it was:\n{actual}"
    assert len(left) == len(right), message
    for one, other in zip(left, right, strict=True):
        try:
            assert float(other) == pytest.approx(float(one), rel=1e-6), message
        except ValueError:
            assert one == other, message


def run_document(name: str, monkeypatch: pytest.MonkeyPatch, **defined: Any) -> list[Block]:
    """Run all blocks, one after the other, in one namespace, and compare what they print with what is in the document.

    `defined` is what the document uses without defining it.
    """
    found = blocks(name)
    namespace: dict[str, Any] = {"__name__": "__main__", "tf": tf, "computations": lambda: None, **defined}
    for part in found:
        part.printed = run(part, namespace, monkeypatch)
        part.after = dict(namespace)
        if part.output:
            same(part.output, part.printed)
        for variable, value in stated(part.source):
            assert np.allclose(namespace[variable], value, rtol=1e-6), (variable, value, part.source)
    return found


def stated(source: str) -> Iterator[tuple[str, Any]]:
    """Yield the values that comments give for names: `dy_dx = ...  # Will compute to 6.0` or `# dy_dx is [[2, 0]]`."""
    for name, number in re.findall(r"^\s*(\w+) = .*# (?:Will compute to )?(\d+\.\d+)\b", source, re.MULTILINE):
        yield name, float(number)
    for name, values in re.findall(r"# (\w+) (?:value )?is (\[.*\])$", source, re.MULTILINE):
        yield name, ast.literal_eval(values)


# -- the documents


@pytest.mark.parametrize("name", DOCUMENTS)
def test_all_code_of_a_document_is_found(name: str) -> None:
    found = blocks(name)
    assert (len(found), sum(bool(part.output) for part in found)) == DOCUMENTS[name]


def test_scalar_and_jacobian(monkeypatch: pytest.MonkeyPatch) -> None:
    run_document("000", monkeypatch)


def test_tutorial(monkeypatch: pytest.MonkeyPatch) -> None:
    found = run_document("001", monkeypatch)
    # The last block repeats the others, and the document does not show what it prints.
    expected = """
        <tf.Variable 'Variable:0' shape=() dtype=float32, numpy=20.0>
        TensorFlow GradientTape on a floating variable: 40.0
        <tf.Variable 'Variable:0' shape=() dtype=int32, numpy=30>
        tf.Tensor(27000, shape=(), dtype=int32)
        WARNING:tensorflow:The dtype of the target tensor must be floating (e.g. tf.float32) when calling
        GradientTape.gradient, got tf.int32
        WARNING:tensorflow:The dtype of the source tensor must be floating (e.g. tf.float32) when calling
        GradientTape.gradient, got tf.int32
        TensorFlow GradientTape on an integer variable: None
        tf.Tensor([ 1.  8. 27.], shape=(3,), dtype=float32)
        GradientTape on a 1D tensor variable: [ 3. 12. 27.]
        GradientTape on a constant tensor: 6.0
        GradientTape does not watch non-trainable variables: None
        We need to tell GradientTape to watch non-trainable variables explicitly: 75.0
        tf.Tensor(10.0, shape=(), dtype=float32)
        tf.Tensor(20.0, shape=(), dtype=float32)
    """
    same(expected, found[-1].printed)


def test_training_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    model = tf.keras.Sequential([tf.keras.layers.Dense(1)])
    x, y = tf.constant([[1.0], [2.0]]), tf.constant([[3.0], [5.0]])

    @cache  # the loss is computed in one block, and used in the next
    def computations() -> Any:
        return loss_fn(y, model(x))

    def loss_fn(y_true: Any, y_pred: Any) -> Any:
        return tf.reduce_mean(tf.square(y_true - y_pred))

    model(x)
    kernel = model.trainable_variables[0].numpy()
    defined = {"model": model, "loss_fn": loss_fn, "x": x, "y": y, "computations": computations}
    # What the table of the document calls so; its block is the last one, and computes anew.
    v = tf.Variable(3.0)
    defined |= {"target_tensor": v, "source_tensors": [v]}
    found = run_document("002", monkeypatch, **defined)

    assert not np.array_equal(model.trainable_variables[0].numpy(), kernel), "Adam has made a step"
    assert [gradient.shape for gradient in found[1].after["gradients"]] == [(1, 1), (1,)]
    lines = found[3].printed.splitlines()
    assert lines[:-1] == [f"Epoch {epoch}, Loss: 0.0" for epoch in range(0, 100, 10)], "it starts at the solution"
    assert lines[-1] == "Final w: 2.0, b: 1.0"
    assert [gradient.numpy() for gradient in found[4].after["gradients"]] == [1.0]


def test_notebook(monkeypatch: pytest.MonkeyPatch) -> None:
    run_document("003", monkeypatch)


def test_reference(monkeypatch: pytest.MonkeyPatch) -> None:
    a, b, v = tf.Variable(3.0), tf.Variable(2.0), tf.Variable(5.0)
    model = tf.keras.Sequential([tf.keras.layers.Dense(1, use_bias=False, kernel_initializer="ones")])
    defined = {
        "variable_a": a,
        "variable_b": b,
        "inputs": tf.ones((2, 3)),
        "loss_fn": lambda: v * v,
        "other_loss_fn": lambda: v * 7.0,
        "sources": v,
        "computations": lambda: v * v,
        "k": 10.0,
        "model": model,
        "compute_loss": lambda model: tf.reduce_sum(model(tf.constant([[1.0, 2.0]]))),
    }
    found = run_document("004", monkeypatch, **defined)
    source = "\n".join(part.source for part in found)
    assert len(list(stated(source))) == 7

    tape, y, z = (found[3].after[variable] for variable in ("tape", "y", "z"))
    assert [g if g is None else g.numpy() for g in tape.gradient([y, z], [a, b])] == [6.0, None]
    assert found[4].shown == [[None, None]], "the layers are built after the tape has watched their variables"
    assert [gradient.numpy() for gradient in found[7].shown] == [7.0, 7.0], "the loss before the reset does not count"
    assert found[9].after["grads"][0].numpy().tolist() == [[1.0], [2.0]]
