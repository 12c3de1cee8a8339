"""Sphinx configuration: `python -m nox -s docs`."""

from importlib.util import find_spec

from tape_core import __version__

project = "Tape"
author = "The Tape authors"
copyright = "The Tape authors"
version = release = __version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.autosummary", "sphinx.ext.napoleon"]
if find_spec("sphinx_copybutton") is not None:  # without it the pages are the same but for the buttons
    extensions.append("sphinx_copybutton")
myst_heading_anchors = 3
exclude_patterns = ["_build", "examples"]

# A button copies what runs: of a block with prompts the lines that have one, without it, and no results.
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True

html_theme = "furo"
html_title = "Tape"
html_static_path = ["_static"]
html_css_files = ["tables.css"]
html_js_files = [("tables.js", {"defer": "defer"})]

autodoc_typehints = "none"  # signatures stay short; the docstrings say what is taken
autodoc_member_order = "bysource"
napoleon_google_docstring = True
napoleon_numpy_docstring = False
