"""Sphinx: MyST pages, furo; tables of what the program itself knows are written before each build."""

import sys
from pathlib import Path

from sphinx.application import Sphinx

import kvroom

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

project = "kvroom"
author = "the kvroom authors"
copyright = "the kvroom authors, Apache-2.0"
version = release = kvroom.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc"]
myst_enable_extensions = ["colon_fence", "deflist", "attrs_inline"]
myst_heading_anchors = 3
exclude_patterns = ["_build", "_generated", "examples"]

autodoc_member_order = "bysource"
autodoc_typehints = "description"
autodoc_class_signature = "separated"

html_theme = "furo"
html_title = "kvroom"
FIGURES = HERE / "_generated/figures"
FIGURES.mkdir(parents=True, exist_ok=True)
html_static_path = ["static", "_generated/figures"]
html_css_files = ["kvroom.css", "figures.css"]
html_show_sphinx = False
html_theme_options = {
    "light_css_variables": {
        "color-brand-primary": "#00644a",
        "color-brand-content": "#00644a",
        "color-background-primary": "#fbfaf6",
        "color-background-secondary": "#f3f0e8",
    },
    "dark_css_variables": {
        "color-brand-primary": "#4fd0ab",
        "color-brand-content": "#4fd0ab",
        "color-background-primary": "#161614",
        "color-background-secondary": "#1f1e1b",
    },
}


def setup(app: Sphinx) -> None:
    """Write the tables, then read the pages."""
    import tables

    def write(_: Sphinx) -> None:
        tables.write(HERE / "_generated")
        tables.write_figures(FIGURES)

    app.connect("builder-inited", write)
