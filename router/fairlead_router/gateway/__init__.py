"""The gateway: what becomes of each request, from its path to the pool that is asked.

`gateway` handles a request as the table of paths says, `routed_requests` makes of a parsed one what its pool is asked,
with the tokens that `prompt_tokens` knows of its prompt. `claims` says whose it is, `informing` answers about the
router itself. It must not speak to engines about a request: that is `relaying`. Its danger is work before a refusal: a
request that may not be served must cost little.
"""
