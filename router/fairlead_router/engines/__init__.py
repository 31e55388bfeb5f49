"""Connections to engines, and what engines say of themselves.

`upstream` keeps and opens connections; `engine_pages` and `model_cards` read an engine's metrics and its list of
models, and `silences` notes which engines answer nothing. It must not know pools or clients. Its danger is belief: an
engine may say anything, so all that is read is bounded.
"""
