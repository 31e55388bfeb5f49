"""The gateway: takes each request from its path to the pool that decides about it.

`gateway` handles a request as the table of paths says. `routed_requests` turns a parsed request into the question for
its pool, with the prompt tokens that `prompt_tokens` knows. `claims` says whose request it is, `informing` answers
about the router itself. It must not speak to engines about a request: `relaying` does. Its danger is work before a
refusal: a request that may not be served must cost little.
"""
