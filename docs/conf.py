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
    "sphinx.ext.mathjax",
    "sphinx-mathjax-offline",
]
nb_execution_mode = "off"  # outputs as they are stored
nb_ipywidgets_js = {}  # scripts that would come from the network
nb_merge_streams = True
myst_enable_extensions = ["dollarmath", "amsmath"]
myst_heading_anchors = 4
autodoc_typehints = "none"  # the signatures' Any says less than the docstrings
autodoc_mock_imports = [
    name
    for name in ("torch", "torch_geometric", "xgboost", "ray", "folktables")
    if find_spec(name) is None
]
autodoc_default_options = {
    "exclude-members": "set_fit_request"
}  # scikit-learn's, with references into its own manual

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


def plain_docstring(app, what, name, obj, options, lines) -> None:
    """Docstrings are plain text with code in backticks: nothing else in them is markup."""

    def literal(match):
        return f"``{match['code']}``" if match["code"] else "\\" + match[0]

    lines[:] = [
        re.sub(r"(?P<tick>``?)(?P<code>[^`]+)(?P=tick)|[*_|\\]", literal, line)
        for line in lines
    ]


def setup(app) -> None:
    app.connect("autodoc-process-docstring", plain_docstring)
