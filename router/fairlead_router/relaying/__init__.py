"""Relays requests: sends them to engines after the decision, and passes the answers to clients.

`proxying` relays requests that a scheduler decides about, and `direct` relays requests that bypass it. Both use
`sending` to send a request, and buffer its answer until the answer has content (`passing`). If it helps, they try
another instance (`second_opinions`). If an instance is lost or leaves, another instance continues its answers
(`carrying_on`), fetches its KV blocks (`cache_moves`) and computes its sessions' prompts (`heirs`). This package must
not choose instances for routed requests: schedulers do. Its danger is a request that ends twice, or never.
"""
