"""The configuration with which Sphinx builds the site. `docs.site.build` calls it with the version and the sources."""

project = "Fairlead"
author = "The Fairlead authors"
copyright = "The Fairlead authors, Apache-2.0"  # noqa: A001 (Sphinx reads this name)
extensions = ["myst_parser"]
myst_heading_anchors = 6
myst_links_external_new_tab = False
html_theme = "furo"
html_title = "Fairlead"
html_static_path = ["static"]
templates_path = ["templates"]
html_css_files = ["site.css"]
html_js_files = ["versions.js"]
html_copy_source = False
html_show_sourcelink = False
html_use_index = False
html_sidebars = {
    "**": [
        "sidebar/brand.html",
        "versions.html",
        "sidebar/search.html",
        "sidebar/scroll-start.html",
        "sidebar/navigation.html",
        "sidebar/scroll-end.html",
    ]
}
suppress_warnings = ["misc.highlighting_failure"]
"""Warnings about code blocks. A block of console or YAML with an ellipsis is shown as plain text."""
