"""KV events of engines, read from their sockets into a pool's index, and the blocks of prompts, to look up in that
index.

`instances` follows an instance's sources by `subscriptions`, which `reading` reads in short slices. `sources` says
where an engine publishes, `wire` what its bytes mean. `known_prompts` keeps the blocks of prompts with known tokens;
`prompt_texts` says what tokens depend on, and how to ask an engine for them. `metrics` counts.

This package must not hold up or fail a request: without events a router uses the history of its own requests. Its
dangers are a burst of events on the loop that serves requests, and an index that is wrong after a lost batch.
"""
