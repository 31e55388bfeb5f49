"""Builds the documents as a site: `make docs`. Needs Sphinx (`tests/tools/docs.txt`) for `build` only.

`staging` arranges the repository's documents as Sphinx wants them, `api_reference` writes pages of the OpenAPI
document, `checking` follows every link of the finished pages, `build` is the command. The documents stay plain
Markdown, which every forge renders; whatever only the site needs is added here.
"""
