"""The gateway: passes each client's request to the pool that serves it.

`gateway` handles a request according to the table of paths. `routed_requests` turns a parsed request into the routing
request for its pool, with the known tokens from `prompt_tokens`. `claims` finds the request's tenant and priority
class, and `informing` responds to requests about the router itself. This package does not send requests to engines;
`relaying` does. Its danger is work before a refusal: a request that may not be served must cost little.
"""
