"""Connections to engines, and engines' reports about themselves.

`upstream` keeps and opens connections; `engine_pages` and `model_cards` parse an engine's metrics and its list of
models, and `silences` notes which engines do not respond at all. This package must not know pools or clients. Its
danger is trust: an engine may report anything, so everything read from an engine is bounded.
"""
