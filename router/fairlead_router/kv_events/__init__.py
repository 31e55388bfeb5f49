"""KV events of engines, from their sockets into the index of a pool; and the blocks of prompts, to ask it by.

`instances` follows an instance's sources by `subscriptions`, which `reading` lets read in short slices; `sources` says
where an engine publishes, `wire` what its bytes mean. `known_prompts` keeps the blocks of prompts whose tokens are
known; `prompt_texts` says what tokens depend on, and what an engine is asked for them. `metrics` counts.

It must not hold up or fail a request: without events a router goes by what it sent itself. Its danger is a burst of
events on the loop that serves requests, and an index that is wrong where a batch was lost.
"""
