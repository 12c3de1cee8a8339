"""Meshes: what is the same in all libraries whose arrays are divided, for their `distributed` modules.

A mesh has named axes, and a layout says along which of them the dimensions of an array are divided. How a library
divides arrays, and how its processes or devices tell each other something, is the business of the backend's package.
"""

from tape_core.meshes.axes import AxesAsked, NamedMesh, asked, check_mesh
from tape_core.meshes.draws import FILLED, Between, Making, PartwiseRandom, fill, label_of, make
from tape_core.meshes.layouts import axes_of_dimensions, check_divides, described
from tape_core.meshes.moving import about, check_parts_alike, divide_tree, map_leaves, whole

__all__ = [
    "FILLED",
    "AxesAsked",
    "Between",
    "Making",
    "NamedMesh",
    "PartwiseRandom",
    "about",
    "asked",
    "axes_of_dimensions",
    "check_divides",
    "check_mesh",
    "check_parts_alike",
    "described",
    "divide_tree",
    "fill",
    "label_of",
    "make",
    "map_leaves",
    "whole",
]
