"""Sphinx configuration: `python -m nox -s docs`."""

from tape_core import __version__

project = "Tape"
author = "The Tape authors"
copyright = "The Tape authors"
version = release = __version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.autosummary", "sphinx.ext.napoleon"]
myst_heading_anchors = 3
exclude_patterns = ["_build", "examples"]

html_theme = "furo"
html_title = "Tape"

autodoc_typehints = "none"  # signatures stay short; the docstrings say what is taken
autodoc_member_order = "bysource"
napoleon_google_docstring = True
napoleon_numpy_docstring = False
