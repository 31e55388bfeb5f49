"""Relays requests: sends them to engines after the decision, and passes the answers to clients.

`proxying` relays requests that a scheduler decides about, `direct` requests that bypass it. Both send by `sending`,
buffer an answer until it has content (`passing`) and try another instance where that helps (`second_opinions`). If an
instance is lost or leaves, another instance continues its answers (`carrying_on`), fetches its KV blocks
(`cache_moves`) and computes its sessions' prompts (`heirs`). This package must not choose instances for routed
requests: schedulers do. Its danger is a request that ends twice, or never.
"""
