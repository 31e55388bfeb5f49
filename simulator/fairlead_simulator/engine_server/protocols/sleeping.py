"""`/sleep`, `/wake_up` and `/is_sleeping`, which vLLM serves with VLLM_SERVER_DEV_MODE=1."""

from typing import cast

from fairlead_simulator.engine_server.exchange import Exchange
from fairlead_simulator.engine_server.request_errors import RequestInvalid, not_simulated, shown
from fairlead_simulator.engine_server.served_instance import ServedInstance
from fairlead_simulator.engine_server.sleeping import PauseMode, SleepMode

_LEVELS = {"0": 0, "1": 1, "2": 2}


async def serve_sleep(instance: ServedInstance, exchange: Exchange) -> None:
    """Answers once the engine sleeps."""
    level, mode = _level(exchange.query("level")), exchange.query("mode") or "abort"
    if mode == "keep":
        raise not_simulated("mode", mode, "write abort or wait")
    if mode not in {"abort", "wait"}:
        raise _unsuitable("mode", mode, "'abort', 'wait' or 'keep'")
    await _of(instance).sleep(level, cast(PauseMode, mode))
    await exchange.answer_json({"status": "sleeping", "level": level})


async def serve_wake_up(instance: ServedInstance, exchange: Exchange) -> None:
    """Answers once the engine, or what the tags name of it, is awake."""
    tags = exchange.queries("tags") or None
    awake = await _of(instance).wake(tags)
    await exchange.answer_json({"status": "awake" if awake else "sleeping", "tags": tags})


async def serve_is_sleeping(instance: ServedInstance, exchange: Exchange) -> None:
    await exchange.answer_json({"is_sleeping": _of(instance).is_sleeping})


def _level(text: str | None) -> int:
    if text is None:
        return 1
    if text not in _LEVELS:
        raise _unsuitable("level", text, "0, 1 or 2")
    return _LEVELS[text]


def _unsuitable(field: str, value: str, wanted: str) -> RequestInvalid:
    words = f"1 validation error: query.{field}: Input should be {wanted}, not {shown(value)}"
    return RequestInvalid(words, f"query.{field}", kind="Bad Request")


def _of(instance: ServedInstance) -> SleepMode:
    assert instance.sleep_mode is not None, "the paths are there only with a mode of sleep"
    return instance.sleep_mode
