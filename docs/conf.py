"""Sphinx configuration: `python -m nox -s docs`."""

from importlib.util import find_spec

from tape_core import __version__

project = "Tape"
author = "The Tape authors"
copyright = "The Tape authors"
version = release = __version__

# myst_nb reads Markdown as myst_parser does, and runs the pages of notebooks/, whose head names a kernel.
extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.autosummary", "sphinx.ext.napoleon"]
if find_spec("sphinx_copybutton") is not None:  # without it the pages are the same but for the buttons
    extensions.append("sphinx_copybutton")
myst_heading_anchors = 3
myst_enable_extensions = ["attrs_block"]
exclude_patterns = ["_build", "examples"]
default_role = "code"  # `x + 1` in docstrings is code, as in the pages

nb_execution_mode = "force"
nb_execution_timeout = 120  # seconds for each cell
nb_execution_raise_on_error = True
nb_merge_streams = True

# A button copies what runs: of a block with prompts the lines that have one, without it, and no results. What is
# shown only, such as messages, has no button.
copybutton_selector = (
    "div:not(.highlight-text):not(.highlight-none):not(.highlight-myst-ansi):not(.output) > div.highlight > pre"
)
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True

html_theme = "furo"
html_title = "Tape"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_js_files = [("site.js", {"defer": "defer"})]
html_theme_options = {"top_of_page_buttons": []}
pygments_dark_style = "a11y-dark"

autodoc_typehints = "none"  # signatures stay short; the docstrings say what is taken
autodoc_member_order = "bysource"
napoleon_google_docstring = True
napoleon_numpy_docstring = False
