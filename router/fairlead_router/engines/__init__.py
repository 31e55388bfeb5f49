"""Connections to engines, and what engines report about themselves.

`upstream` keeps and opens connections; `engine_pages` and `model_cards` read an engine's metrics and its list of
models, and `silences` notes which engines answer nothing. This package must not know pools or clients. Its danger is
belief: an engine may report anything, so everything read from it is bounded.
"""
