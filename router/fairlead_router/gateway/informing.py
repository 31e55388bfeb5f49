"""The router's responses about itself: models, health, readiness and version for clients; metrics and a debug view for
its operators.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from importlib.metadata import version
from typing import Any
from urllib.parse import unquote

import msgspec
import orjson

from fairlead_router.engines.model_cards import merged
from fairlead_router.engines.upstream import UpstreamPool
from fairlead_router.metrics.instance_metrics import InstanceReading
from fairlead_router.metrics.metrics import RouterMetrics, render
from fairlead_router.metrics.pool_metrics import PoolReading
from fairlead_router.pools.pool import Pool
from fairlead_router.pools.pools import Opens, Pools
from fairlead_router.protocols.paths import Endpoint
from fairlead_router.protocols.refusals import BadRequest, ErrorAnswer

Send = Callable[[dict[str, Any]], Awaitable[None]]
Scope = dict[str, Any]


class Informing:
    """Responds to requests that need no engine. `synced`: whether the control API has sent all its tables at least
    once.
    """

    def __init__(self, pools: Pools, upstream: UpstreamPool, metrics: RouterMetrics) -> None:
        self._pools = pools
        self._upstream = upstream
        self._metrics = metrics
        self.synced = False
        self.draining = False
        """Whether the router is stopping. It is then not ready, and serves only clients that are already connected."""
        self.refusing = False
        """Whether the router is about to stop and refuses every new request."""

    async def answer(self, endpoint: Endpoint, scope: Scope, send: Send, opens: Opens) -> None:
        """Respond to a request for an endpoint that the table of paths marks as LOCAL. `opens`: the pools that the
        client may use.

        Raises BadRequest 404 for a model that is not served.
        """
        match endpoint.path:
            case "/v1/models":
                await send_json(send, 200, {"object": "list", "data": self._models(opens)})
            case "/v1/models/{id}":
                await send_json(send, 200, self._model(unquote(scope["raw_path"].decode("latin-1")).removeprefix("/v1/models/"), opens))
            case "/version":
                await send_json(send, 200, {"version": f"fairlead-router {version('fairlead')}"})
            case "/healthz":
                await send_json(send, 200, {"status": "alive"})
            case "/readyz":
                await self.send_readiness(send)
            case _:
                await self._send_health(send)

    async def _send_health(self, send: Send) -> None:
        """Respond to `/health` in the form that engines use: 200 without a body while the router accepts requests;
        otherwise the response of `/readyz`.
        """
        if self.ready:
            await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]})
            await send({"type": "http.response.body", "body": b""})
        else:
            await self.send_readiness(send)

    @property
    def ready(self) -> bool:
        """Whether the router takes new requests."""
        return not self.draining and (self.synced or len(self._pools) > 0)

    async def send_readiness(self, send: Send) -> None:
        """Respond with 200 if the router takes new requests. Respond with 503 while it drains, and before it has a
        routing table or knows from the control API that there is none.

        The response also has the age of the oldest unacknowledged report. A router that cannot report still serves, so
        that age does not make it unready.
        """
        ready = self.ready
        reason = "shutting-down" if self.draining else "ready" if ready else "no routing table yet"
        document = {
            "ready": ready,
            "reason": reason,
            "pools": len(self._pools),
            "synced": self.synced,
            "oldest_unsent_report_seconds": round(self._metrics.oldest_unsent_report_seconds, 1),
            "reports_set_aside": self._metrics.reports_set_aside,
        }
        await send_json(send, 200 if ready else 503, document)

    def _models(self, opens: Opens) -> list[dict[str, object]]:
        models: list[dict[str, object]] = []
        for name in self._pools.models(opens):
            base = self._pools.base_of(name)
            card = _card(name, name, self._pools.serving(name, opens))
            models.append(card if base is None else {**card, "parent": base})
        models.extend(
            {**_card(str(pool.key), pool.table.model, [pool]), "root": pool.table.model}
            for pool in self._pools.all()
            if opens(pool, pool.table.model)
        )
        return models

    def _model(self, wanted: str, opens: Opens) -> dict[str, object]:
        for model in self._models(opens):
            if model["id"] == wanted:
                return model
        raise BadRequest(404, "model_not_found", f"model: {wanted[:200]!r} is not served here", "model")

    # ── for operators ──

    async def send_metrics(self, send: Send) -> None:
        """Send the Prometheus page."""
        self._metrics.upstream_connections = self._upstream.opened
        self._metrics.pool_readings = [
            PoolReading(
                str(pool.key),
                pool.account.held().requests,
                pool.token_sizes.report(),
                pool.scheduler.prefill_figure(self._pools.now()),
                pool.scheduler.prefill_estimate(),
                pool.scheduler.decode_estimate(),
                pool.scheduler.assumed_routers,
            )
            for pool in self._pools.all()
        ]
        self._metrics.readings = _readings(self._pools.living())
        text = render(self._metrics)
        headers = [(b"content-type", b"text/plain; version=0.0.4; charset=utf-8"), (b"content-length", b"%d" % len(text))]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": text})

    async def send_debug(self, send: Send) -> None:
        """Send the table and the requests in flight of every pool."""
        await send_json(send, 200, {"pools": [_carried(_debug(pool)) for pool in self._pools.living()]})


def _readings(pools: Iterable[Pool]) -> list[InstanceReading]:
    """Return one reading for each instance of each pool. If a pool was deleted and created again, the readings of the
    old and the new pool are added for each instance.
    """
    found: dict[tuple[str, str], InstanceReading] = {}
    for pool in pools:
        name = str(pool.key)
        for row in pool.scheduler.carried():
            known = found.get((name, row.instance))
            if known is None:
                engines = pool.engines
                usage, page, lives = engines.kv_usage.get(row.instance), engines.pages.get(row.instance), engines.lives_of(row.instance)
                ranks = {} if page is None else engines.rank_figures(row.instance, pool.addresses.get(row.instance, ""), page)
                found[name, row.instance] = InstanceReading(name, row.instance, row.in_flight, row.waiting, usage, page, ranks, lives)
            else:
                known.in_flight += row.in_flight
                known.waiting += row.waiting
    return list(found.values())


def _card(name: str, model: str, pools: Iterable[Pool]) -> dict[str, object]:
    """Return the model card of a name, with the fields on which the engines of these pools agree."""
    told = merged([cards[model] for pool in pools for cards in pool.engines.cards.values() if model in cards])
    return {"id": name, "object": "model", "created": 0, "owned_by": "fairlead", "root": model} | told | {"id": name, "object": "model"}


def _debug(pool: Pool) -> dict[str, object]:
    return {
        "table": msgspec.to_builtins(pool.table),
        "requests": len(pool.account.tickets),
        "waiting": pool.account.waiting,
        "held": pool.account.held().requests,
        "decided_elsewhere": pool.account.is_decided_elsewhere,
        "asking_routers": pool.account.asking_routers,
        "in_flight": [msgspec.to_builtins(row) for row in pool.scheduler.in_flight()],
        "direct": dict(pool.account.direct),
        "kv_usage": pool.engines.kv_usage,
        "engines": {instance: msgspec.to_builtins(page) for instance, page in pool.engines.pages.items()},
        "lives": {instance: life.life for instance, life in pool.engines.lives.items()},
        "troubled_engines": [msgspec.to_builtins(row) for row in pool.engines.troubled()],
    }


def _carried(document: Mapping[str, object]) -> dict[str, object]:
    """Return the document with a message in place of each field that cannot be encoded as JSON, so that such a field of
    one pool does not break the response about all pools.
    """
    return {name: told if _is_carried(told) else "this value cannot be written as JSON" for name, told in document.items()}


def _is_carried(told: object) -> bool:
    try:
        orjson.dumps(told)
    except orjson.JSONEncodeError:
        return False
    return True


async def send_json(send: Send, status: int, document: object) -> None:
    """Send a JSON response."""
    body = orjson.dumps(document)
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def send_answer(send: Send, answer: ErrorAnswer) -> None:
    """Send a response that the router itself made."""
    await send({"type": "http.response.start", "status": answer.status, "headers": answer.headers})
    await send({"type": "http.response.body", "body": answer.body})
