"""The simulated engine as a server that routers, metrics scrapers and readiness probes cannot distinguish from a vLLM
instance.

It is a raw ASGI application on uvicorn around the engine model that `fairlead simulate` runs. It has the OpenAI
endpoints with streaming, vLLM's metric names, failure injection by header, and a time scale. The server advances the
model by the clock and wakes only when a client would notice a change. It must stay cheap, because a dozen such engines
run on two cores; therefore it imports neither numpy nor a web framework. Its danger: wherever it differs from a real
engine's behaviour on the wire, routers are tested against something false.
"""
