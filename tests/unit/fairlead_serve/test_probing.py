"""A prober's findings at an engine, from the engine's own pages."""

from collections.abc import Mapping

import httpx

from fairlead_router.kv_events.sources import EventSource
from fairlead_serve.probing import EngineFindings, Prober

URL = "http://10.0.0.7:30000"


async def found(pages: Mapping[str, object]) -> EngineFindings:
    """Return the findings at an engine that has these pages and no others."""

    def answer(request: httpx.Request) -> httpx.Response:
        page = pages.get(request.url.path)
        if page is None:
            return httpx.Response(404)
        return httpx.Response(200, text=page) if isinstance(page, str) else httpx.Response(200, json=page)

    prober = Prober(httpx.MockTransport(answer))
    try:
        return await prober.findings(URL)
    finally:
        await prober.close()


async def test_sglang_is_recognised_and_asked_in_its_own_words() -> None:
    publisher = {"publisher": "zmq", "endpoint_host": "*", "endpoint_port_base": 5557, "topic": "", "block_size": 16, "dp_size": 1}
    pages = {
        "/health": "",
        "/v1/models": {"object": "list", "data": [{"id": "m", "owned_by": "sglang"}]},
        "/server_info": {"version": "0.5.23", "kv_events": publisher},
        "/metrics": "sglang:max_total_num_tokens 9600.0\n",
    }
    assert await found(pages) == EngineFindings(
        url=URL,
        models=("m",),
        engine_type="sglang",
        version="0.5.23",
        kv_cache_tokens=9600,
        sources=(EventSource(rank=0, endpoint="tcp://10.0.0.7:5557", replay_endpoint=None, topic=""),),
    )


async def test_any_other_engine_is_asked_as_vllm() -> None:
    pages = {
        "/v1/models": {"data": [{"id": "m"}]},
        "/version": {"version": "0.32"},
        "/kv_event_sources": {"0": {"endpoint": "tcp://*:5557"}},
    }
    seen = await found(pages)
    assert (seen.engine_type, seen.version, len(seen.sources), seen.problem) == ("vllm", "0.32", 1, None)


async def test_an_empty_list_of_models_asks_for_no_key() -> None:
    seen = await found({"/v1/models": {"data": []}})
    assert (seen.models, seen.problem) == ((), "it answers, but lists no models at /v1/models")
