"""KV events of engines: read from their sockets into a pool's index; and the block keys of prompts, to look up in that
index.

`instances` follows an instance's sources by `subscriptions`, which `reading` reads in short slices. `sources` finds the
endpoints at which an engine publishes, `wire` decodes the messages. `known_prompts` keeps the blocks of prompts with
known tokens; `prompt_texts` says which parts of a request determine its tokens, and how an engine is asked for them.
`metrics` counts.

This package must not delay or fail a request: without events a router uses the history of its own requests. Its dangers
are a burst of events on the event loop that serves requests, and an index that is wrong after a lost batch.
"""
