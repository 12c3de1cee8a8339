"""The table of Modules and Variables that :meth:`Module.summary` prints."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from typing import TYPE_CHECKING

from tape_core import Variable

if TYPE_CHECKING:
    from tape_nn.module import Module

_HEAD = ("Name", "Module", "Variables", "Parameters")


class Summary:
    """A table of the Modules that hold Variables: as text, and as HTML in notebooks.

    Attributes:
        rows: for each Module that holds Variables, or has yet to make them: its name, its class, its Variables with
            their shapes, and the number of their elements (None if they are yet to be made).
        parameters, trainable: the number of elements of all Variables, and of those that training changes.
    """

    def __init__(self, module: Module) -> None:
        # The longest path first, so that the first match below is the innermost Module.
        owners = sorted(module.named_modules(), key=lambda item: -len(item[0]))
        held: dict[str, list[tuple[str, Variable]]] = {path: [] for path, _ in owners}
        for name, variable in module.named_variables():
            # `not path` is the Module itself, which comes last and holds what no other does.
            owner = next(path for path, _ in owners if not path or name.startswith(f"{path}."))
            held[owner].append((name[len(owner) + 1 :] if owner else name, variable))
        self.rows: list[tuple[str, str, str, int | None]] = []
        for path, found in module.named_modules():
            variables = held[path]
            name, kind = path or "(itself)", type(found).__name__
            if not getattr(found, "built", True):
                self.rows.append((name, kind, "not built", None))
            elif variables:
                self.rows.append((name, kind, _describe(variables), sum(v.size for _, v in variables)))
        self.parameters = sum(v.size for v in module.variables)
        self.trainable = sum(v.size for v in module.trainable_variables)

    def _cells(self) -> list[tuple[str, ...]]:
        return [(name, kind, text, "?" if n is None else f"{n:,}") for name, kind, text, n in self.rows]

    def _total(self) -> str:
        unknown = ", without what is not built" if any(n is None for *_, n in self.rows) else ""
        return f"{self.parameters:,} parameters, {self.trainable:,} of them trainable{unknown}"

    def __str__(self) -> str:
        cells = self._cells()
        widths = [max(map(len, column)) for column in zip(_HEAD, *cells, strict=True)]
        rule = tuple("-" * width for width in widths)
        lines = [
            "  ".join([*(cell.ljust(width) for cell, width in zip(row, widths, strict=True))][:-1])
            + "  "
            + row[-1].rjust(widths[-1])
            for row in (_HEAD, rule, *cells)
        ]
        return "\n".join([*lines, self._total()])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        def row(tag: str, cells: Iterable[str]) -> str:
            return "<tr>" + "".join(f"<{tag}>{escape(cell)}</{tag}>" for cell in cells) + "</tr>"

        body = "".join(row("td", cells) for cells in self._cells())
        return f"<table><thead>{row('th', _HEAD)}</thead><tbody>{body}</tbody></table><p>{self._total()}</p>"


def _describe(variables: list[tuple[str, Variable]]) -> str:
    return ", ".join([_text(name, variable) for name, variable in variables])


def _text(name: str, variable: Variable) -> str:
    fixed = "" if getattr(variable, "trainable", True) else " fixed"
    place = variable.backend.place(variable._array)  # how it is divided among devices or processes, if it is
    return f"{name} {variable.shape}{fixed}{place and f' {place}'}"
