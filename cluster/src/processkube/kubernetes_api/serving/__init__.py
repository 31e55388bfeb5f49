"""HTTP: accounts, TLS, discovery, OpenAPI, tables, and every verb of the API.

This package must not hold rules about objects; `writing` does. Its danger is a slow handler, which stalls every watch.
"""
