"""The simulated engine as a server: routers, metrics scrapers and readiness probes cannot distinguish it from a vLLM
instance.

It is raw ASGI on uvicorn around the engine model that `fairlead simulate` runs: the OpenAI endpoints with streaming,
vLLM's metric names, failure injection by header, a time scale. It advances the model by the clock and wakes only when a
client would notice something. It must stay cheap (a dozen run on two cores), so it imports neither numpy nor a web
framework. Its danger: wherever it differs from a real engine's behaviour on the wire, routers are tested against
something false.
"""
