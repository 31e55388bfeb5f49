"""HTTP: accounts, TLS, discovery, OpenAPI, tables, and every verb of the API.

It must not hold rules about objects; `writing` does. Its danger: a slow handler, which stalls every watch.
"""
