"""Builds the documents as a site: `make docs`. Only `build` needs Sphinx (`tests/tools/docs.txt`).

`staging` arranges the repository's documents as Sphinx requires them, `api_reference` writes pages from the OpenAPI
document, `checking` follows every link of the finished pages, and `build` is the command. The documents stay plain
Markdown, which every forge renders. Parts that only the site needs are added here.
"""
