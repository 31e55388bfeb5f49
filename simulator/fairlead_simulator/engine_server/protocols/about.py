"""What an engine tells about itself: health, version, load, models, metrics."""

from fairlead_simulator.engine_server.exchange import Exchange
from fairlead_simulator.engine_server.metrics_text import CONTENT_TYPE, render_metrics
from fairlead_simulator.engine_server.served_instance import ServedInstance


async def serve_health(instance: ServedInstance, exchange: Exchange) -> None:
    """Empty 200, or 503 while the engine starts; `/ping` is the same."""
    await exchange.answer(200 if instance.ready else 503, content_type=None)


async def serve_version(instance: ServedInstance, exchange: Exchange) -> None:
    await exchange.answer_json({"version": instance.settings.version})


async def serve_load(instance: ServedInstance, exchange: Exchange) -> None:
    """Requests being computed, in the words of a vLLM that tracks its load."""
    await exchange.answer_json({"server_load": instance.load})


async def serve_kv_event_sources(instance: ServedInstance, exchange: Exchange) -> None:
    """Where cache events are published, by rank; empty if nowhere."""
    await exchange.answer_json(instance.kv_event_sources)


async def serve_models(instance: ServedInstance, exchange: Exchange) -> None:
    settings = instance.settings
    permission = {
        "id": f"modelperm-{settings.id_prefix}0",
        "object": "model_permission",
        "created": settings.created,
        "allow_create_engine": False,
        "allow_sampling": True,
        "allow_logprobs": False,
        "allow_search_indices": False,
        "allow_view": True,
        "allow_fine_tuning": False,
        "organization": "*",
        "group": None,
        "is_blocking": False,
    }
    card = {
        "id": settings.model,
        "object": "model",
        "created": settings.created,
        "owned_by": "fairlead-simulator",
        "root": settings.model,
        "parent": None,
        "max_model_len": settings.context_tokens,
        "permission": [permission],
    }
    await exchange.answer_json({"object": "list", "data": [card]})


async def serve_metrics(instance: ServedInstance, exchange: Exchange) -> None:
    for rank in instance.ranks:
        rank.pacer.advance()
    engines = [rank.pacer.engine for rank in instance.ranks]
    await exchange.answer(200, render_metrics(engines, instance.settings.model, instance.answered), CONTENT_TYPE)
