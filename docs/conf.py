"""Sphinx configuration of the book; tools/book.py collects its pages and builds it."""

import re
from importlib.util import find_spec

from cfhelpers import __version__

project = "Conformal fairness"
author = "Conformal Fairness authors"
release = version = __version__

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx.ext.mathjax",
    "sphinx-mathjax-offline",
]
nb_execution_mode = "off"  # outputs as they are stored
nb_ipywidgets_js = {}  # scripts that would come from the network
nb_merge_streams = True
myst_enable_extensions = ["dollarmath", "amsmath"]
myst_heading_anchors = 4
autodoc_typehints = "none"  # the docstrings say more
napoleon_google_docstring = False
napoleon_use_ivar = True  # attributes as a list, not as entries of their own
napoleon_use_rtype = False
autodoc_mock_imports = [
    name
    for name in ("torch", "torch_geometric", "xgboost", "ray", "folktables")
    if find_spec(name) is None
]
# scikit-learn's, with references into its own manual.
autodoc_default_options = {"exclude-members": "set_fit_request"}

html_theme = "sphinx_book_theme"
html_title = "Conformal fairness"
html_domain_indices = False
html_static_path = ["_static"]
html_css_files = ["book.css"]
html_theme_options = {
    "show_navbar_depth": 1,
    "show_toc_level": 2,
    "navbar_persistent": [],  # the sidebar has the search box
    "use_fullscreen_button": False,
}


CODE_OR_SIGN = re.compile(r"(?P<tick>``?)(?P<code>[^`]+)(?P=tick)|[*_|\\]")


def plain_docstring(app, what, name, obj, options, lines) -> None:
    """Docstrings are plain text, code in backticks, examples: nothing else is markup."""

    def literal(match: re.Match) -> str:
        if match["code"]:
            return f"``{match['code']}``"
        return "\\" + match[0]

    is_example = False
    for place, line in enumerate(lines):
        if line.lstrip().startswith(">>>"):
            is_example = True
        elif not line.strip():
            is_example = False
        if not is_example:
            lines[place] = CODE_OR_SIGN.sub(literal, line)


def setup(app) -> None:
    # Before napoleon, which makes markup of the sections.
    app.connect("autodoc-process-docstring", plain_docstring, priority=400)
