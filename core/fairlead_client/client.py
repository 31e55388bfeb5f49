"""`ControlApi`: one method per endpoint of the public API, returning the shared dataclasses.

It never retries: the caller knows whether waiting is worth it. `with_token` gives another identity the same connection
pool, so that one web process can serve many people.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Any, TypeVar
from urllib.parse import quote

import httpx
import msgspec

from fairlead.tables import PoolKey
from fairlead_client.addresses import reaching
from fairlead_client.live import LiveEvent
from fairlead_client.problems import ApiProblem, ApiUnreachable
from fairlead_client.resources.access import (
    Identity,
    LoginLink,
    LoginLinkRequest,
    LoginModes,
    LoginRequest,
    OidcLoginRequest,
    OidcProvider,
    TokenItem,
    TokenRequest,
    WebSession,
    WebSessionItem,
)
from fairlead_client.resources.advice import AdviceReport, Trends
from fairlead_client.resources.audit import AuditEntry, AuditHead, AuditVerification
from fairlead_client.resources.decisions import DecisionReasons, RoutingDecision
from fairlead_client.resources.expectations import PlanExpectation
from fairlead_client.resources.gateway_keys import GatewayKey, GatewayKeyRequest, GatewayKeyUsage
from fairlead_client.resources.heatmaps import Heatmap
from fairlead_client.resources.instances import InstanceDetail, InstanceSummary
from fairlead_client.resources.load_explanations import LoadExplanation
from fairlead_client.resources.moves import Migration, MigrationMatrix, ReRoute
from fairlead_client.resources.pages import Page
from fairlead_client.resources.plans import ApplyRequest, Plan, PlanKind, PlanRequest
from fairlead_client.resources.pools import PoolDetail, PoolEventItem, PoolRevision, PoolSummary
from fairlead_client.resources.predictors import Predictor
from fairlead_client.resources.problems import Problem
from fairlead_client.resources.rejections import RejectionReport
from fairlead_client.resources.rings import Ring
from fairlead_client.resources.rollouts import Rollout
from fairlead_client.resources.scaling import ScalingDecisionItem
from fairlead_client.resources.schedules import InForceAt, ScheduleDetail, ScheduleItem, ScheduleRun
from fairlead_client.resources.search import SearchReport
from fairlead_client.resources.series import Annotations, Series
from fairlead_client.resources.sessions import SessionDetail, SessionSummary
from fairlead_client.resources.simulations import Simulation, SimulationItem, SimulationPlanRequest, SimulationRequest
from fairlead_client.resources.slo import SloAttainment, SloBurn, SloVersion, SloWhatIf

Answer = TypeVar("Answer")
Query = Mapping[str, str | int | float | bool | tuple[str, ...] | None]


class ControlApi:
    """Client of the control API at `urls` (one address, or several of the same API), as the bearer of `token`.

    `transport` replaces the network (httpx.ASGITransport in one process). Raises ApiProblem for every problem document
    and ApiUnreachable when there was no usable answer.
    """

    def __init__(
        self,
        urls: str | Sequence[str],
        token: str | None = None,
        transport: httpx.AsyncBaseTransport | None = None,
        *,
        timeout_seconds: float = 10.0,
        http: httpx.AsyncClient | None = None,
    ) -> None:
        if http is None:
            base_url, transport = reaching(urls, transport)
            http = httpx.AsyncClient(
                base_url=base_url, transport=transport, timeout=timeout_seconds, trust_env=False, headers={"accept": "application/json"}
            )
        self._http = http
        self._token = token

    def with_token(self, token: str | None) -> "ControlApi":
        """A client with the same connections and another bearer token."""
        return ControlApi("", token, http=self._http)

    async def close(self) -> None:
        """Closes the connections, also those of every client made by `with_token`."""
        await self._http.aclose()

    async def __aenter__(self) -> "ControlApi":
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.close()

    # --- identity

    async def whoami(self) -> Identity:
        return await self._call("GET", "/v1/whoami", Identity)

    async def login_modes(self) -> LoginModes:
        return await self._call("GET", "/v1/login-modes", LoginModes)

    async def login(self, token: str, *, address: str | None = None) -> WebSession:
        """`address` is that of the person for whom another process asks; the API heeds it from those it trusts."""
        headers = {"x-forwarded-for": address} if address else {}
        return await self._call("POST", "/v1/login", WebSession, body=LoginRequest(token=token), headers=headers)

    async def oidc_provider(self) -> OidcProvider:
        return await self._call("GET", "/v1/login/oidc", OidcProvider)

    async def login_with_oidc(self, request: OidcLoginRequest, *, address: str | None = None) -> WebSession:
        """`address` as with `login`."""
        headers = {"x-forwarded-for": address} if address else {}
        return await self._call("POST", "/v1/login/oidc", WebSession, body=request, headers=headers)

    async def logout(self) -> None:
        await self._call("POST", "/v1/logout", None)

    async def web_sessions(self, *, cursor: str | None = None, limit: int | None = None) -> Page[WebSessionItem]:
        return await self._call("GET", "/v1/web-sessions", Page[WebSessionItem], query={"cursor": cursor, "limit": limit})

    async def revoke_web_session(self, session_id: str) -> None:
        await self._call("DELETE", f"/v1/web-sessions/{_segment(session_id)}", None)

    async def create_login_link(self, request: LoginLinkRequest) -> LoginLink:
        return await self._call("POST", "/v1/login-links", LoginLink, body=request)

    async def tokens(self, *, cursor: str | None = None, limit: int | None = None) -> Page[TokenItem]:
        return await self._call("GET", "/v1/tokens", Page[TokenItem], query={"cursor": cursor, "limit": limit})

    async def create_token(self, request: TokenRequest) -> TokenItem:
        return await self._call("POST", "/v1/tokens", TokenItem, body=request)

    async def revoke_token(self, token_id: str) -> None:
        await self._call("DELETE", f"/v1/tokens/{_segment(token_id)}", None)

    async def gateway_keys(self, *, cursor: str | None = None, limit: int | None = None) -> Page[GatewayKey]:
        return await self._call("GET", "/v1/gateway-keys", Page[GatewayKey], query={"cursor": cursor, "limit": limit})

    async def create_gateway_key(self, request: GatewayKeyRequest) -> GatewayKey:
        return await self._call("POST", "/v1/gateway-keys", GatewayKey, body=request)

    async def revoke_gateway_key(self, key_id: str) -> None:
        await self._call("DELETE", f"/v1/gateway-keys/{_segment(key_id)}", None)

    async def gateway_key_usage(self, key_id: str, filters: Query | None = None) -> GatewayKeyUsage:
        return await self._call("GET", f"/v1/gateway-keys/{_segment(key_id)}/usage", GatewayKeyUsage, query=filters)

    # --- pools

    async def pools(self, *, cursor: str | None = None, limit: int | None = None) -> Page[PoolSummary]:
        return await self._call("GET", "/v1/pools", Page[PoolSummary], query={"cursor": cursor, "limit": limit})

    async def pool(self, pool: PoolKey, *, instances: bool = True) -> PoolDetail:
        return await self._call("GET", f"/v1/pools/{_path(pool)}", PoolDetail, query=None if instances else {"instances": False})

    async def instances(self, pool: PoolKey, *, cursor: str | None = None, limit: int | None = None) -> Page[InstanceSummary]:
        return await self._call(
            "GET", f"/v1/pools/{_path(pool)}/instances", Page[InstanceSummary], query={"cursor": cursor, "limit": limit}
        )

    async def instance(self, pool: PoolKey, instance: str) -> InstanceDetail:
        return await self._call("GET", f"/v1/pools/{_path(pool)}/instances/{_segment(instance)}", InstanceDetail)

    async def revisions(self, pool: PoolKey, *, cursor: str | None = None, limit: int | None = None) -> Page[PoolRevision]:
        return await self._call("GET", f"/v1/pools/{_path(pool)}/revisions", Page[PoolRevision], query={"cursor": cursor, "limit": limit})

    async def events(self, pool: PoolKey, *, cursor: str | None = None, limit: int | None = None) -> Page[PoolEventItem]:
        return await self._call("GET", f"/v1/pools/{_path(pool)}/events", Page[PoolEventItem], query={"cursor": cursor, "limit": limit})

    async def slo_versions(self, pool: PoolKey, *, cursor: str | None = None, limit: int | None = None) -> Page[SloVersion]:
        return await self._call("GET", f"/v1/pools/{_path(pool)}/slo", Page[SloVersion], query={"cursor": cursor, "limit": limit})

    async def slo_attainment(
        self,
        pool: PoolKey,
        *,
        start: str | None = None,
        end: str | None = None,
        version: int | None = None,
        priority_class: str | None = None,
    ) -> SloAttainment:
        """How the objectives were kept from `start` to `end` (`now-6h`, RFC 3339), in the past day unless given."""
        query: Query = {"from": start, "to": end, "version": version, "priority_class": priority_class}
        return await self._call("GET", f"/v1/pools/{_path(pool)}/slo/attainment", SloAttainment, query=query)

    async def slo_burn(self, pool: PoolKey) -> SloBurn:
        return await self._call("GET", f"/v1/pools/{_path(pool)}/slo/burn", SloBurn)

    async def slo_what_if(
        self,
        pool: PoolKey,
        *,
        ttft: str | None = None,
        tpot: str | None = None,
        percentile: float | None = None,
        start: str | None = None,
        end: str | None = None,
        priority_class: str | None = None,
    ) -> SloWhatIf:
        """What requests of the range, the past day unless given, would have met under other targets, such as `5s`."""
        query: Query = {"ttft": ttft, "tpot": tpot, "percentile": percentile, "from": start, "to": end, "priority_class": priority_class}
        return await self._call("GET", f"/v1/pools/{_path(pool)}/slo/what-if", SloWhatIf, query=query)

    async def ring(self, pool: PoolKey, *, add: int | None = None, remove: Sequence[str] = (), anchors: int | None = None) -> Ring:
        """The arguments ask what a change would move: so many instances more, those that leave, other anchors."""
        query: Query = {"add": add, "remove": tuple(remove), "anchors": anchors}
        return await self._call("GET", f"/v1/pools/{_path(pool)}/ring", Ring, query=query)

    async def predictor(self, pool: PoolKey) -> Predictor:
        return await self._call("GET", f"/v1/pools/{_path(pool)}/predictor", Predictor)

    async def rollout(self, pool: PoolKey) -> Rollout:
        return await self._call("GET", f"/v1/pools/{_path(pool)}/rollout", Rollout)

    async def heatmap(
        self,
        pool: PoolKey,
        *,
        metric: str = "pending_prefill_tokens",
        start: str = "now-1h",
        end: str = "now",
        columns: int | None = None,
        aggregate: str = "max",
        sort: str = "name",
        group: str = "instance",
    ) -> Heatmap:
        """`start` and `end` are RFC 3339 or `now-15m`; `columns` at most 360."""
        query = {"metric": metric, "from": start, "to": end, "columns": columns, "aggregate": aggregate, "sort": sort, "group": group}
        return await self._call("GET", f"/v1/pools/{_path(pool)}/heatmap", Heatmap, query=query)

    async def load_explanation(
        self, pool: PoolKey, instance: str, *, metric: str = "pending_prefill_tokens", start: str = "now-5m", end: str = "now"
    ) -> LoadExplanation:
        """Why the instance was loaded as it was from `start` to `end`, at most a day."""
        query = {"metric": metric, "from": start, "to": end}
        path = f"/v1/pools/{_path(pool)}/instances/{_segment(instance)}/explanation"
        return await self._call("GET", path, LoadExplanation, query=query)

    # --- numbers over time; of all pools without a pool, of a pool without an instance

    async def series(
        self,
        metrics: Sequence[str],
        pool: PoolKey | None = None,
        instance: str | None = None,
        *,
        start: str = "now-1h",
        end: str = "now",
        buckets: int | None = None,
    ) -> Series:
        """`metrics` are names of SERIES_METRICS; `buckets` is the most steps of a line, at most 360."""
        query: Query = {"metrics": ",".join(metrics), "from": start, "to": end, "buckets": buckets}
        return await self._call("GET", f"{_subject(pool, instance)}/series", Series, query=query)

    async def annotations(
        self, pool: PoolKey | None = None, instance: str | None = None, *, start: str = "now-1h", end: str = "now"
    ) -> Annotations:
        return await self._call("GET", f"{_subject(pool, instance)}/annotations", Annotations, query={"from": start, "to": end})

    # --- schedules

    async def schedules(self, filters: Query | None = None) -> Page[ScheduleItem]:
        return await self._call("GET", "/v1/schedules", Page[ScheduleItem], query=filters)

    async def schedule(self, pool: PoolKey, name: str, *, start: str | None = None) -> ScheduleDetail:
        """`start` is the beginning of the week shown, as RFC 3339."""
        return await self._call("GET", f"/v1/schedules/{_path(pool)}/{_segment(name)}", ScheduleDetail, query={"from": start})

    async def bounds(self, pool: PoolKey, *, at: str = "now") -> InForceAt:
        return await self._call("GET", f"/v1/pools/{_path(pool)}/bounds", InForceAt, query={"at": at})

    async def schedule_runs(self, filters: Query | None = None) -> Page[ScheduleRun]:
        return await self._call("GET", "/v1/schedule-runs", Page[ScheduleRun], query=filters)

    # --- sessions, migrations, decisions, rejections, audit; `filters` are the query names (`from`, `pool`, …)

    async def sessions(self, filters: Query | None = None) -> Page[SessionSummary]:
        return await self._call("GET", "/v1/sessions", Page[SessionSummary], query=filters)

    async def session(self, pool: PoolKey, session: str) -> SessionDetail:
        return await self._call("GET", f"/v1/sessions/{_path(pool)}/{_segment(session)}", SessionDetail)

    async def migrations(self, filters: Query | None = None) -> Page[Migration]:
        return await self._call("GET", "/v1/migrations", Page[Migration], query=filters)

    async def migration(self, migration_id: str) -> Migration:
        return await self._call("GET", f"/v1/migrations/{_segment(migration_id)}", Migration)

    async def migration_matrix(self, filters: Query | None = None) -> MigrationMatrix:
        return await self._call("GET", "/v1/migrations/matrix", MigrationMatrix, query=filters)

    async def reroutes(self, filters: Query | None = None) -> Page[ReRoute]:
        return await self._call("GET", "/v1/reroutes", Page[ReRoute], query=filters)

    async def reroute(self, reroute_id: str) -> ReRoute:
        return await self._call("GET", f"/v1/reroutes/{_segment(reroute_id)}", ReRoute)

    async def reroute_matrix(self, filters: Query | None = None) -> MigrationMatrix:
        return await self._call("GET", "/v1/reroutes/matrix", MigrationMatrix, query=filters)

    async def decisions(self, filters: Query | None = None) -> Page[RoutingDecision]:
        return await self._call("GET", "/v1/decisions", Page[RoutingDecision], query=filters)

    async def decision(self, decision_id: str) -> RoutingDecision:
        return await self._call("GET", f"/v1/decisions/{_segment(decision_id)}", RoutingDecision)

    async def decision_reasons(self, pool: PoolKey, *, newest: int = 100) -> DecisionReasons:
        return await self._call("GET", f"/v1/pools/{_path(pool)}/decision-reasons", DecisionReasons, query={"newest": newest})

    async def scaling_decisions(self, filters: Query | None = None) -> Page[ScalingDecisionItem]:
        return await self._call("GET", "/v1/scaling-decisions", Page[ScalingDecisionItem], query=filters)

    async def scaling_decision(self, decision_id: str) -> ScalingDecisionItem:
        return await self._call("GET", f"/v1/scaling-decisions/{_segment(decision_id)}", ScalingDecisionItem)

    async def rejections(self, filters: Query | None = None) -> RejectionReport:
        return await self._call("GET", "/v1/rejections", RejectionReport, query=filters)

    async def audit(self, filters: Query | None = None) -> Page[AuditEntry]:
        return await self._call("GET", "/v1/audit", Page[AuditEntry], query=filters)

    async def audit_entry(self, entry_id: int) -> AuditEntry:
        return await self._call("GET", f"/v1/audit/{entry_id}", AuditEntry)

    async def audit_verification(self, kept: AuditHead | None = None) -> AuditVerification:
        query: Query | None = None if kept is None else {"head_id": kept.id, "head_chain": kept.chain}
        return await self._call("GET", "/v1/audit/verification", AuditVerification, query=query)

    async def audit_head(self) -> AuditHead:
        return await self._call("GET", "/v1/audit/head", AuditHead)

    # --- search

    async def search(self, part: str, *, limit: int = 8) -> SearchReport:
        """Everything that has a page and this part in its name."""
        return await self._call("GET", "/v1/search", SearchReport, query={"q": part, "limit": limit})

    # --- advice

    async def advice(self, pool: PoolKey | None = None) -> AdviceReport:
        """What hurts all pools, or one, ranked by harm."""
        return await self._call("GET", "/v1/advice" if pool is None else f"/v1/pools/{_path(pool)}/advice", AdviceReport)

    async def trends(self, *, start: str = "now-1h", end: str = "now") -> Trends:
        """All pools over a range, in a few steps each."""
        return await self._call("GET", "/v1/trends", Trends, query={"from": start, "to": end})

    # --- plans

    async def create_plan(self, pool: PoolKey, request: PlanRequest) -> Plan:
        return await self._call("POST", f"/v1/pools/{_path(pool)}/plans", Plan, body=request)

    async def create_scale_plan(self, pool: PoolKey, replicas: int) -> Plan:
        return await self.create_plan(pool, PlanRequest(kind=PlanKind.SCALE, replicas=replicas))

    async def plans(self, filters: Query | None = None) -> Page[Plan]:
        return await self._call("GET", "/v1/plans", Page[Plan], query=filters)

    async def plan(self, plan_id: str) -> Plan:
        return await self._call("GET", f"/v1/plans/{_segment(plan_id)}", Plan)

    async def plan_expectation(self, plan_id: str) -> PlanExpectation:
        return await self._call("GET", f"/v1/plans/{_segment(plan_id)}/expectation", PlanExpectation)

    async def apply_plan(self, plan_id: str, request: ApplyRequest) -> Plan:
        return await self._call("POST", f"/v1/plans/{_segment(plan_id)}/apply", Plan, body=request)

    async def undo_plan(self, plan_id: str) -> Plan:
        return await self._call("POST", f"/v1/plans/{_segment(plan_id)}/undo", Plan)

    async def plan_again(self, plan_id: str) -> Plan:
        """The same change, planned of the object as it is now."""
        return await self._call("POST", f"/v1/plans/{_segment(plan_id)}/again", Plan)

    # --- what-if

    async def create_simulation(self, pool: PoolKey, request: SimulationRequest) -> Simulation:
        return await self._call("POST", f"/v1/pools/{_path(pool)}/simulations", Simulation, body=request)

    async def simulations(self, pool: PoolKey, *, cursor: str | None = None, limit: int | None = None) -> Page[SimulationItem]:
        query = {"cursor": cursor, "limit": limit}
        return await self._call("GET", f"/v1/pools/{_path(pool)}/simulations", Page[SimulationItem], query=query)

    async def simulation(self, pool: PoolKey, simulation_id: str) -> Simulation:
        return await self._call("GET", f"/v1/pools/{_path(pool)}/simulations/{_segment(simulation_id)}", Simulation)

    async def cancel_simulation(self, pool: PoolKey, simulation_id: str) -> Simulation:
        return await self._call("DELETE", f"/v1/pools/{_path(pool)}/simulations/{_segment(simulation_id)}", Simulation)

    async def create_simulation_plan(self, pool: PoolKey, simulation_id: str, request: SimulationPlanRequest) -> Plan:
        return await self._call("POST", f"/v1/pools/{_path(pool)}/simulations/{_segment(simulation_id)}/plan", Plan, body=request)

    # --- streams of text

    async def live(
        self, topics: tuple[str, ...], *, pool: PoolKey | None = None, last_event_id: str | None = None
    ) -> AsyncIterator[LiveEvent]:
        """Server-sent events, decoded; ends when the API closes the stream.

        A first event `poll` means that too many streams are open: poll instead.
        """
        query = {"topics": ",".join(topics), "pool": str(pool) if pool else None}
        headers = {"last-event-id": last_event_id} if last_event_id else {}
        async with self._streaming("/v1/live", query, httpx.Timeout(10.0, read=30.0), headers) as response:
            fields: dict[str, str] = {}
            async for line in response.aiter_lines():
                if line:
                    name, _, value = line.partition(":")
                    fields[name] = (
                        f"{fields[name]}\n{value.removeprefix(' ')}" if name == "data" and "data" in fields else value.removeprefix(" ")
                    )
                    continue
                if "data" in fields:
                    yield LiveEvent(event=fields.get("event", "message"), data=fields["data"], id=fields.get("id"))
                fields = {}

    async def live_bytes(self, query: Query, *, last_event_id: str | None = None) -> AsyncIterator[bytes]:
        """The same stream as raw bytes, for a proxy such as the web UI."""
        headers = {"last-event-id": last_event_id} if last_event_id else {}
        async with self._streaming("/v1/live", query, httpx.Timeout(10.0, read=30.0), headers) as response:
            async for chunk in response.aiter_raw():
                yield chunk

    async def export(self, path: str, filters: Query | None = None) -> AsyncIterator[bytes]:
        """A whole list as the API streams it; `path` such as `/v1/migrations.csv`."""
        async with self._streaming(path, filters or {}, httpx.Timeout(10.0, read=60.0), {"accept": "*/*"}) as response:
            async for chunk in response.aiter_raw():
                yield chunk

    # --- sending and decoding

    async def _call(
        self,
        method: str,
        path: str,
        answer: type[Answer] | None,
        *,
        query: Query | None = None,
        body: object = None,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        payload = msgspec.json.encode(body) if body is not None else None
        headers = {**self._headers(), **(headers or {})}
        if payload is not None:
            headers["content-type"] = "application/json"
        try:
            response = await self._http.request(method, path, params=_present(query), content=payload, headers=headers)
        except httpx.HTTPError as error:
            raise _unreachable(error) from error
        # httpx's response and its stream know each other: left so, each call is garbage that has to be searched for
        response.stream = httpx.ByteStream(b"")
        if response.status_code >= 400:
            raise _problem(response)
        if answer is None:
            return None  # type: ignore[return-value]  # callers without an answer type discard the value
        try:
            return msgspec.json.decode(response.content, type=answer)
        except msgspec.MsgspecError as error:
            raise ApiUnreachable(f"the control API's answer to {method} {path} cannot be read: {error}") from error

    @asynccontextmanager
    async def _streaming(self, path: str, query: Query, limits: httpx.Timeout, headers: dict[str, str]) -> AsyncIterator[httpx.Response]:
        try:
            async with self._http.stream(
                "GET", path, params=_present(query), headers={**self._headers(), **headers}, timeout=limits
            ) as response:
                if response.status_code >= 400:
                    await response.aread()
                    raise _problem(response)
                yield response
        except httpx.HTTPError as error:
            raise _unreachable(error) from error

    def _headers(self) -> dict[str, str]:
        return {"authorization": f"Bearer {self._token}"} if self._token else {}


def _present(query: Query | None) -> dict[str, Any]:
    return {name: value for name, value in (query or {}).items() if value is not None}


def _path(pool: PoolKey) -> str:
    return f"{_segment(pool.namespace)}/{_segment(pool.name)}"


def _subject(pool: PoolKey | None, instance: str | None) -> str:
    of_pool = "" if pool is None else f"/pools/{_path(pool)}"
    return "/v1" + of_pool + ("" if instance is None else f"/instances/{_segment(instance)}")


def _segment(text: str) -> str:
    return quote(text, safe="")


def _unreachable(error: httpx.HTTPError) -> ApiUnreachable:
    return ApiUnreachable(f"the control API did not answer: {str(error) or type(error).__name__}")


def _problem(response: httpx.Response) -> ApiProblem | ApiUnreachable:
    try:
        problem = msgspec.json.decode(response.content, type=Problem)
    except msgspec.MsgspecError:
        return ApiUnreachable(f"the control API answered {response.status_code} without a problem document")
    after = response.headers.get("retry-after", "")
    return ApiProblem(problem, float(after) if after.isdigit() else None)
