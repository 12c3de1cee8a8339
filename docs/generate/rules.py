"""The page `docs/rules.md`: every op with its derivative rules, from the source of the declarations."""

from __future__ import annotations

import ast
import copy
import inspect
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from types import ModuleType

from tape_core.engine.op import Op
from tape_core.extend import registry

HEAD = """\
# Every rule on one page

All ops of Tape with their derivative rules, by the file that declares them. [](ops-and-rules.md) explains how rules are
spelled; in short:

- `x: xp.cos(x)` is the rule of an elementwise op: its partial derivative with respect to `x`. The engine multiplies it
  with the cotangent, and sums over axes that were broadcast.
- `x: g -> ...` is a VJP: it makes the cotangent of `x` from `g`, the cotangent of the result.
- A name is a function, whose source is [below](#the-functions). It is a VJP if it takes `g`.
- `out` is the result, `x_spec` has the shape and dtype of the input `x`, `common` is what the function at `common:`
  computes once for several rules, `residuals` are the residuals that the op's kernel leaves.
- A number is a constant partial derivative. `NONDIFF`: nothing flows through this input, on purpose.

`python docs/generate` writes this page from the source.

## The rules
"""


def page() -> str:
    """The whole page, as Markdown."""
    chapters: dict[str, list[Op]] = {}
    for op in registry.values():
        module = op.function.__module__
        if module.startswith("tape_core.ops."):
            chapters.setdefault(module, []).append(op)
    rules, functions = [HEAD], ["\n## The functions\n"]
    for name, ops in sorted(chapters.items()):
        module = import_module(name)
        title = f"`{name.removeprefix('tape_core.').replace('.', '/')}.py`"
        used: dict[str, None] = {}
        rules.append(f"\n{title}\n\n{_chapter(module, ops, used)}")
        if used:
            source = "\n\n\n".join([_function(module, helper) for helper in used])
            functions.append(f"\n{title}\n\n```py\n{source}\n```\n")
    return "".join([*rules, *functions])


def _chapter(module: ModuleType, ops: list[Op], used: dict[str, None]) -> str:
    """The rules of a file's ops; `used` gets the functions of which they consist."""
    text = ""
    if flowing := [op for op in ops if op.differentiable]:
        width = min(max(len(_heading(op)) for op in flowing), 40)
        lines = [line for op in flowing for line in _op(op, module, width, used)]
        text = "\n".join(["```text", *lines, "```", ""])
    if still := [op.name for op in ops if not op.differentiable]:
        names = ", ".join(f"`{name}`" for name in still)
        text += ("\n" if text else "") + f"Nothing flows through {names}.\n"
    return text


def _heading(op: Op) -> str:
    return f"{op.name}({', '.join(op.signature.parameters)})"


def _op(op: Op, module: ModuleType, width: int, used: dict[str, None]) -> Iterator[str]:
    """The lines of one op: its name, then a rule for each input."""
    declared = _declarations(module)[op.name]
    together = "**" if "**" in declared else ""  # a function gives the rules of all inputs
    named = {together or name: declared[together or name] for name in op.inputs}
    if "common" in declared:
        named["common"] = declared["common"]
    rules = [
        (", ".join(op.inputs) if name == "**" else name, _rule(rule, module, used)) for name, rule in named.items()
    ]
    head = _heading(op)
    if len(head) > width:
        yield head
        head = ""
    for name, text in rules:
        yield f"{head:<{width}}  {name}: {text}"
        head = ""


@cache
def _tree(module: ModuleType) -> ast.Module:
    return ast.parse(inspect.getsource(module))


@cache
def _declarations(module: ModuleType) -> dict[str, dict[str, ast.expr]]:
    """By the name of the op, the keywords of its decorator."""
    return {
        node.name: keywords
        for node in ast.walk(_tree(module))
        if isinstance(node, ast.FunctionDef)
        for call in node.decorator_list
        if isinstance(call, ast.Call) and (keywords := _keywords(module, call))
    }


def _keywords(module: ModuleType, call: ast.Call) -> dict[str, ast.expr]:
    """The keywords with which a decorator declares an op, where a file's own decorator calls one of those too."""
    given = {keyword.arg or "**": keyword.value for keyword in call.keywords}
    own = _definitions(module).get(getattr(call.func, "id", ""))
    if not isinstance(own, ast.FunctionDef):
        return given
    names = [argument.arg for argument in own.args.posonlyargs + own.args.args]
    passed = dict(zip(names, call.args, strict=False))
    for node in ast.walk(own):
        if isinstance(node, ast.Return) and isinstance(node.value, ast.Call):
            declared = {one.arg: _filled(one.value, passed) for one in node.value.keywords if one.arg}
            return declared | given
    return given


def _filled(node: ast.expr, passed: dict[str, ast.expr]) -> ast.expr:
    """An expression of a decorator's body with what is passed in place of the parameters."""

    class Fill(ast.NodeTransformer):
        def visit_Name(self, name: ast.Name) -> ast.expr:
            return passed.get(name.id, name)

    filled: ast.expr = Fill().visit(copy.deepcopy(node))
    return filled


@cache
def _definitions(module: ModuleType) -> dict[str, ast.AST]:
    """By name, the functions of a module and the expressions that are assigned to a name."""
    found: dict[str, ast.AST] = {}
    for node in _tree(module).body:
        if isinstance(node, ast.FunctionDef):
            found[node.name] = node
        elif isinstance(node, ast.Assign):
            target, value = node.targets[0], node.value
            pairs = zip(target.elts, value.elts, strict=False) if isinstance(target, ast.Tuple) else [(target, value)]
            found |= {name.id: given for name, given in pairs if isinstance(name, ast.Name)}
    return found


def _rule(rule: ast.AST, module: ModuleType, used: dict[str, None]) -> str:
    """A rule in the words of the page; `used` gets the functions whose source belongs to it."""
    if isinstance(rule, ast.Lambda):
        names = [argument.arg for argument in rule.args.args]
        _use(rule.body, module, used)
        return ("g -> " if "g" in names[:2] else "") + _source(rule.body, module)
    if isinstance(rule, ast.Call) and getattr(rule.func, "id", "") in ("vjp", "transpose"):
        return _rule(rule.args[0], module, used)
    if isinstance(rule, ast.Name):
        definition = _definitions(module).get(rule.id, rule)
        if not isinstance(definition, ast.FunctionDef | ast.Name):
            return _rule(definition, module, used)
    _use(rule, module, used)
    return _source(rule, module)


def _use(node: ast.AST, module: ModuleType, used: dict[str, None]) -> None:
    """Note the functions of the module that a rule names, and those which these name."""
    for child in ast.walk(node):
        definition = _definitions(module).get(getattr(child, "id", "")) if isinstance(child, ast.Name) else None
        if isinstance(definition, ast.FunctionDef) and child.id not in used and child.id not in registry:
            used[child.id] = None
            _use(definition, module, used)


def _source(node: ast.AST, module: ModuleType) -> str:
    """An expression as it is written, on one line."""
    text = " ".join((ast.get_source_segment(inspect.getsource(module), node) or "").split())
    return text.replace("( ", "(").replace(" )", ")")


def _function(module: ModuleType, name: str) -> str:
    """The source of a function that rules consist of, without its docstring."""
    node = _definitions(module)[name]
    assert isinstance(node, ast.FunctionDef)
    first, body = node.lineno - 1, node.body
    lines = inspect.getsource(module).splitlines()[first : node.end_lineno]
    if ast.get_docstring(node) is not None and len(body) > 1:
        lines[body[0].lineno - 1 - first : body[1].lineno - 1 - first] = []
    return "\n".join(lines)
