"""The public API in memory, over a made-up world: HTTP by noun, composed in `app`.

It must not answer what the real API does not: `tests/contract/public_api` holds both to the same cases. Its danger:
a page that only works against the fake.
"""
