"""Drawings of what a tape recorded: layout, SVG and HTML."""

from tape_core.debugging.drawing.drawing import Drawing

__all__ = ["Drawing"]
