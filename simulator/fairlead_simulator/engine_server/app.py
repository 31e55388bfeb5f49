"""The ASGI application of one simulated engine: finds the route of a request, runs its handler, and turns refusals into
vLLM's error documents.
"""

from http import HTTPStatus

import orjson

from fairlead_simulator.engine_server.asgi import BodyTooLarge, ClientGone, Connections, Receive, Scope, Send
from fairlead_simulator.engine_server.exchange import Exchange
from fairlead_simulator.engine_server.failures import FailureKind
from fairlead_simulator.engine_server.protocols.routes import Route, RouteTable
from fairlead_simulator.engine_server.protocols.stored_responses import ResponseStore
from fairlead_simulator.engine_server.request_errors import RequestInvalid
from fairlead_simulator.engine_server.served_instance import ServedInstance
from fairlead_simulator.errors import ContextTooLong, EngineOverloaded


class EngineApp:
    """The ASGI application of one simulated instance. If `store` is None, responses of the responses API are not
    stored.
    """

    def __init__(self, instance: ServedInstance, connections: Connections, store: ResponseStore | None) -> None:
        self._instance = instance
        self._connections = connections
        self._routes = RouteTable(store, sleeps=instance.sleep_mode is not None)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        method = scope["method"]
        by_method, name = self._routes.find(scope["path"])
        exchange = Exchange(scope, receive, send, self._connections, self._instance.settings.body_limit_bytes, name)
        route = by_method.get(method)
        if route is None:
            await _refuse_path(exchange, tuple(by_method))
            return
        instance = self._instance
        instance.load += route.computes
        try:
            await self._answer(route, exchange)
        finally:
            instance.load -= route.computes
        if exchange.status is not None and not route.tells_itself:
            outcome = (route.path, method, f"{exchange.status // 100}xx")
            instance.answered[outcome] = instance.answered.get(outcome, 0) + 1

    async def _answer(self, route: Route, exchange: Exchange) -> None:
        try:
            if route.computes and await self._fail(exchange):
                return
            await route.serve(self._instance, exchange)
        except ClientGone:
            return
        except RequestInvalid as error:
            await _refuse(exchange, route, error)
        except BodyTooLarge:
            limit = self._instance.settings.body_limit_bytes
            await _refuse(exchange, route, RequestInvalid(f"the body exceeds {limit} bytes", status=413))
        except ContextTooLong as error:
            await _refuse(exchange, route, RequestInvalid(f"{error} (parameter=input_tokens)", "input_tokens"))
        except EngineOverloaded as error:
            await _refuse(exchange, route, RequestInvalid(str(error), status=503, kind="ServiceUnavailableError"))

    async def _fail(self, exchange: Exchange) -> bool:
        """Fail the request if it asks for an injected failure. Return True if the request is thereby finished. Raises
        RequestInvalid for the injected status 500, and if the engine is not ready.
        """
        exchange.read_failure()
        if exchange.fails(FailureKind.REFUSE):
            await exchange.cut()
            return True
        if exchange.fails(FailureKind.ERROR_500):
            await exchange.body()
            raise RequestInvalid("injected by x-sim-fail", status=500, kind="InternalServerError")
        if exchange.fails(FailureKind.HANG):
            await exchange.body()
            await exchange.gone()
            return True
        if not self._instance.ready:
            await exchange.body()
            raise RequestInvalid("the engine is starting", status=503, kind="ServiceUnavailableError")
        return False


async def _refuse(exchange: Exchange, route: Route, error: RequestInvalid) -> None:
    """Send the error document of a refusal. On Anthropic's paths, vLLM uses Anthropic's error format. The exception are
    fields of the wrong form, because vLLM detects these before it looks at the path.
    """
    if route.anthropic and error.kind != "Bad Request":
        document = {"type": "error", "error": {"type": error.kind, "message": str(error)}}
    else:
        document = {"error": {"message": str(error), "type": error.kind, "param": error.param, "code": error.status}}
    later = ((b"retry-after", b"1"),) if error.status == HTTPStatus.SERVICE_UNAVAILABLE else ()
    await exchange.answer(error.status, orjson.dumps(document), headers=later)


async def _refuse_path(exchange: Exchange, methods: tuple[str, ...]) -> None:
    if methods:
        allowed = ((b"allow", ", ".join(methods).encode("ascii")),)
        await exchange.answer(405, b'{"detail":"Method Not Allowed"}', headers=allowed)
    else:
        await exchange.answer(404, b'{"detail":"Not Found"}')
