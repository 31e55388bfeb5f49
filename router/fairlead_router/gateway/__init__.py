"""The gateway: takes each request from its path to the pool that decides about it.

`gateway` handles a request as the table of paths says. `routed_requests` turns a parsed request into the routing
request for its pool, with the prompt tokens that `prompt_tokens` knows. `claims` finds the request's tenant and class,
and `informing` answers about the router itself. This package must not speak to engines about a request: `relaying`
does. Its danger is work before a refusal: a request that may not be served must cost little.
"""
