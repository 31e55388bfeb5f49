"""The table of all paths of the simulated engine: the handler for each path and method, and whether its work counts as
load.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from fairlead_simulator.engine_server.exchange import Exchange
from fairlead_simulator.engine_server.protocols import about, chat, completions, messages, pooling, scoring
from fairlead_simulator.engine_server.protocols.audio import Audio
from fairlead_simulator.engine_server.protocols.responses import Responses
from fairlead_simulator.engine_server.protocols.stored_responses import ResponseStore
from fairlead_simulator.engine_server.served_instance import ServedInstance

Serve = Callable[[ServedInstance, Exchange], Awaitable[None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """The handler of a path, and the treatment of requests to the path.

    If `computes`, requests need a ready engine, count as load, and may ask for an injected failure. If `tells_itself`,
    responses are not counted in the engine's metrics; vLLM, too, does not count health, load, metrics, ping and
    version. `anthropic` selects Anthropic's error format.
    """

    path: str
    serve: Serve
    computes: bool = True
    tells_itself: bool = False
    anthropic: bool = False


def _itself(path: str, serve: Serve) -> Route:
    return Route(path=path, serve=serve, computes=False, tells_itself=True)


_SLEEPING = (
    ("POST", Route(path="/sleep", serve=about.serve_sleep, computes=False)),
    ("POST", Route(path="/wake_up", serve=about.serve_wake_up, computes=False)),
    ("GET", Route(path="/is_sleeping", serve=about.serve_is_sleeping, computes=False)),
)


class RouteTable:
    """All paths of the engine. The paths for sleeping are included only if `sleeps` is set. A path may contain
    `{name}`, which stands for a variable part without slashes.
    """

    def __init__(self, store: ResponseStore | None, *, sleeps: bool = False) -> None:
        responses = Responses(store)
        transcriptions = Audio("transcription", "trsc", tells_usage=True)
        translations = Audio("translation", "trsl", tells_usage=False)
        self._exact: dict[str, dict[str, Route]] = {}
        self._open: list[tuple[str, str, dict[str, Route]]] = []
        for methods, route in (
            ("GET", _itself("/health", about.serve_health)),
            ("GET POST", _itself("/ping", about.serve_health)),
            ("GET", _itself("/version", about.serve_version)),
            ("GET", _itself("/load", about.serve_load)),
            ("GET", _itself("/metrics", about.serve_metrics)),
            ("GET", Route(path="/kv_event_sources", serve=about.serve_kv_event_sources, computes=False)),
            ("GET", Route(path="/v1/models", serve=about.serve_models, computes=False)),
            ("POST", Route(path="/tokenize", serve=about.serve_tokenize, computes=False)),
            ("POST", Route(path="/detokenize", serve=about.serve_detokenize, computes=False)),
            ("POST", Route(path="/v1/chat/completions", serve=chat.serve_chat)),
            ("POST", Route(path="/v1/chat/completions/batch", serve=chat.serve_chat_batch)),
            ("POST", Route(path="/v1/completions", serve=completions.serve_completion)),
            ("POST", Route(path="/invocations", serve=completions.serve_invocation)),
            ("POST", Route(path="/v1/responses", serve=responses.create)),
            ("GET", Route(path="/v1/responses/{id}", serve=responses.retrieve, computes=False)),
            ("POST", Route(path="/v1/responses/{id}/cancel", serve=responses.cancel, computes=False)),
            ("POST", Route(path="/v1/messages", serve=messages.serve_message, anthropic=True)),
            ("POST", Route(path="/v1/messages/count_tokens", serve=messages.serve_token_count, computes=False, anthropic=True)),
            ("POST", Route(path="/v1/embeddings", serve=pooling.serve_embeddings)),
            ("POST", Route(path="/pooling", serve=pooling.serve_pooling)),
            ("POST", Route(path="/classify", serve=pooling.serve_classification)),
            *(("POST", Route(path=path, serve=scoring.serve_score)) for path in ("/score", "/v1/score")),
            *(("POST", Route(path=path, serve=scoring.serve_rerank)) for path in ("/rerank", "/v1/rerank", "/v2/rerank")),
            *((methods, route) for methods, route in _SLEEPING if sleeps),
            ("POST", Route(path="/generative_scoring", serve=scoring.serve_generative_score)),
            ("POST", Route(path="/v1/audio/transcriptions", serve=transcriptions.serve)),
            ("POST", Route(path="/v1/audio/translations", serve=translations.serve)),
        ):
            self._add(route, methods.split())

    @property
    def paths(self) -> tuple[str, ...]:
        """All paths of the engine, with `{name}` for a variable part."""
        return tuple(
            route.path for by_method in (*self._exact.values(), *(found for _, _, found in self._open)) for route in set(by_method.values())
        )

    def find(self, path: str) -> tuple[dict[str, Route], str]:
        """Return the path's handlers by method, empty if the path is unknown, and the value of its variable part
        `{name}`, "" if it has none.
        """
        by_method = self._exact.get(path)
        if by_method is not None:
            return by_method, ""
        for before, after, found in self._open:
            name = path[len(before) : len(path) - len(after)]
            if path.startswith(before) and path.endswith(after) and name and "/" not in name:
                return found, name
        return {}, ""

    def _add(self, route: Route, methods: list[str]) -> None:
        before, brace, rest = route.path.partition("{")
        by_method = dict.fromkeys(methods, route)
        if brace:
            self._open.append((before, rest.partition("}")[2], by_method))
        else:
            self._exact[route.path] = by_method
