"""What happens between a decision and the end of the answer: requests sent to engines, and their answers to clients.

`proxying` relays requests that a scheduler decides about, `direct` those that go past it; both send by `sending`, hold
an answer until it has content (`passing`) and try another instance where that is of use (`second_opinions`). It must
not choose instances for routed requests: schedulers do. Its danger is a request that ends twice, or never.
"""
