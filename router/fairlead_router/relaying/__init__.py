"""Relaying between a decision and the end of the answer: the router sends requests to engines, and passes their answers
to clients.

`proxying` relays requests that a scheduler decides about, `direct` requests that bypass it. Both send by `sending`,
hold an answer until it has content (`passing`) and try another instance where that helps (`second_opinions`). Another
instance continues what a lost or leaving instance had: answers by `carrying_on`, KV blocks by `cache_moves`, prompts by
`heirs`. This package must not choose instances for routed requests: schedulers do. Its danger is a request that ends
twice, or never.
"""
