"""The simulated engine as a server: to routers, scrapers and readiness probes it looks like a vLLM instance.

Raw ASGI on uvicorn around the engine model that `fairlead simulate` runs: the OpenAI endpoints with streaming, vLLM's
metric names, failure injection by header, a time scale. It advances the model by the clock and wakes only when a client
would notice something. It must stay cheap (a dozen run on two cores), so it imports neither numpy nor a web framework.
Its danger: whatever here differs from a real engine's wire behaviour teaches routers something false.
"""
