"""The public API in memory, over a made-up world. Each module has the endpoints of a noun; `app` composes them.

It must not give answers that the real API does not give: `tests/contract/public_api` runs the same cases against fake
and real API. Its danger: a page that works only against the fake.
"""
