"""The protocols of clients and engines: paths, requests, prompts, answers, errors.

Its functions are pure: they turn bytes and documents into facts. `paths` is the table of all paths, `requests` parses a
request, `prompts` makes its canonical prompt, `answers` parses engines' answers, and `refusals` makes the router's own
errors. This package must not do I/O or know pools. Its danger is a function that knows only some of the protocols.
Therefore each function uses one table for all protocols.
"""
