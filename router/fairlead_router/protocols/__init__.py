"""The protocols of clients and engines: paths, requests, prompts, answers, errors.

Pure: bytes and documents in, facts out. `paths` is the table of all paths, `requests` parses a request, `prompts` makes
its canonical prompt, `answers` parses engines' answers, and `refusals` makes the router's own errors. This package must
not do I/O or know pools. Its danger is a function that knows only some of the protocols: each function uses one table
for all of them.
"""
