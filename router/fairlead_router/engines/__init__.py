"""Connections to engines, and engines' reports about themselves.

`upstream` keeps and opens connections. `engine_pages` parses an engine's metrics, `model_cards` its list of models, and
`silences` records which engines do not respond. This package must not know pools or clients. Its danger is trust: an
engine may report anything, so everything that is read from an engine is bounded.
"""
