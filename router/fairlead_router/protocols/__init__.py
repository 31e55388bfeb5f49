"""What clients, this router and engines send each other: paths, requests, prompts, answers, errors.

Pure: bytes and documents in, facts out. `paths` is the table of all paths, `requests` reads a request, `prompts` makes
its canonical prompt, `answers` reads what engines answer, and `refusals` are the router's own errors. This package must
not do I/O or know pools. Its danger is a reader that knows only some protocols: each reader uses one table for all of
them.
"""
