"""Endpoints that compute nothing: health, version, load, models, metrics, `/tokenize` and `/detokenize`. Also `/sleep`,
`/wake_up` and `/is_sleeping`, which vLLM serves only with VLLM_SERVER_DEV_MODE=1.
"""

from typing import cast

from fairlead_simulator.engine_server import fields
from fairlead_simulator.engine_server.exchange import Exchange
from fairlead_simulator.engine_server.metrics_text import AWAKE, CONTENT_TYPE, render_metrics
from fairlead_simulator.engine_server.protocols.prompts import chat_prompt
from fairlead_simulator.engine_server.request_errors import RequestInvalid, missing, not_simulated, shown, unsuitable
from fairlead_simulator.engine_server.served_instance import ServedInstance
from fairlead_simulator.engine_server.sleeping import PauseMode, SleepMode

_LEVELS = {"0": 0, "1": 1, "2": 2}


async def serve_health(instance: ServedInstance, exchange: Exchange) -> None:
    """Respond with an empty 200, or with 503 while the engine starts. `/ping` uses this handler, too."""
    await exchange.answer(200 if instance.ready else 503, content_type=None)


async def serve_version(instance: ServedInstance, exchange: Exchange) -> None:
    await exchange.answer_json({"version": instance.settings.version})


async def serve_load(instance: ServedInstance, exchange: Exchange) -> None:
    """Respond with the number of requests being served on paths that compute, in the form of a vLLM that tracks its
    load.
    """
    await exchange.answer_json({"server_load": instance.load})


async def serve_kv_event_sources(instance: ServedInstance, exchange: Exchange) -> None:
    """Respond with each rank's addresses of KV events; the response is empty if no KV events are published."""
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
    gauges = AWAKE if instance.sleep_mode is None else instance.sleep_mode.gauges
    await exchange.answer(200, render_metrics(engines, instance.settings.model, instance.answered, gauges), CONTENT_TYPE)


async def serve_tokenize(instance: ServedInstance, exchange: Exchange) -> None:
    """Respond with the token ids of a prompt or of a conversation. Their number equals the prompt tokens in `usage`."""
    document = await exchange.document()
    fields.check_model(document, instance.settings.model)
    if document.get("messages") is not None:
        prompt = chat_prompt(document["messages"], instance.settings.model)
    else:
        given = fields.text(document, "prompt")
        if given is None:
            raise missing("prompt")
        prompt = given.encode()
    ids = instance.tokenizer.ids(prompt)
    pieces = instance.tokenizer.pieces(prompt) if fields.flag(document, "return_token_strs") else None
    await exchange.answer_json({"count": len(ids), "max_model_len": instance.settings.context_tokens, "tokens": ids, "token_strs": pieces})


async def serve_detokenize(instance: ServedInstance, exchange: Exchange) -> None:
    """Respond with the text of token ids."""
    document = await exchange.document()
    fields.check_model(document, instance.settings.model)
    ids = document.get("tokens")
    if not isinstance(ids, list):
        raise unsuitable("tokens", ids, "a valid list")
    tokenizer = instance.tokenizer
    await exchange.answer_json({"prompt": tokenizer.text(tokenizer.prompt(ids, "tokens"))})


async def serve_sleep(instance: ServedInstance, exchange: Exchange) -> None:
    """Put the engine to sleep, and respond once it sleeps."""
    level, mode = _level(exchange.query("level")), exchange.query("mode") or "abort"
    if mode == "keep":
        raise not_simulated("mode", mode, "write abort or wait")
    if mode not in {"abort", "wait"}:
        raise _unsuitable("mode", mode, "'abort', 'wait' or 'keep'")
    await _sleep_of(instance).sleep(level, cast(PauseMode, mode))
    await exchange.answer_json({"status": "sleeping", "level": level})


async def serve_wake_up(instance: ServedInstance, exchange: Exchange) -> None:
    """Wake the engine, or only the parts that the query's `tags` name, and respond once these are awake."""
    tags = exchange.queries("tags") or None
    awake = await _sleep_of(instance).wake(tags)
    await exchange.answer_json({"status": "awake" if awake else "sleeping", "tags": tags})


async def serve_is_sleeping(instance: ServedInstance, exchange: Exchange) -> None:
    await exchange.answer_json({"is_sleeping": _sleep_of(instance).is_sleeping})


def _level(text: str | None) -> int:
    if text is None:
        return 1
    if text not in _LEVELS:
        raise _unsuitable("level", text, "0, 1 or 2")
    return _LEVELS[text]


def _unsuitable(field: str, value: str, wanted: str) -> RequestInvalid:
    words = f"1 validation error: query.{field}: Input should be {wanted}, not {shown(value)}"
    return RequestInvalid(words, f"query.{field}", kind="Bad Request")


def _sleep_of(instance: ServedInstance) -> SleepMode:
    assert instance.sleep_mode is not None, "the paths are there only with a mode of sleep"
    return instance.sleep_mode
