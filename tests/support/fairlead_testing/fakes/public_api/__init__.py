"""The public API in memory, over a made-up world. Each module has the endpoints of one kind of object; `app` joins
them.

It must not give answers that the real API does not give: `tests/contract/public_api` runs the same cases against both.
Its danger: a page that works only against the fake.
"""
