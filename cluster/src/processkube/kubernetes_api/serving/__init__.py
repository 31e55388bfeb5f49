"""HTTP: accounts, TLS, discovery, OpenAPI, tables, and all verbs of the API.

This package must not contain rules about objects; `writing` does. Its danger is a slow handler, which delays every
watch.
"""
