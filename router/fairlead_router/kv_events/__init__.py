"""Reads the KV events of engines from their sockets into a pool's index, and computes the block keys of prompts, which
are looked up in that index.

`instances` follows the sources of an instance by `subscriptions`, which `reading` reads in short slices. `sources`
finds the endpoints at which an engine publishes, and `wire` decodes the messages. `known_prompts` keeps the blocks of
prompts with known tokens. `prompt_texts` says which parts of a request determine its tokens, and makes the request by
which an engine tokenizes them. `metrics` has the metrics.

This package must not delay or fail a request: without events a router uses the history of its own requests. Its dangers
are a burst of events on the event loop that serves requests, and an index that is wrong after a lost batch.
"""
