"""Routing tables as the control API sends them to routers."""

from collections.abc import Iterable
from typing import Any

from fairlead.instances import InstanceState, Role
from fairlead.tables import (
    EarlyRejectionFacts,
    EngineFacts,
    InstanceEntry,
    KvTransferFacts,
    ModelledFacts,
    PoolKey,
    RoutingFacts,
    RoutingTable,
    SessionFacts,
    SloFacts,
)

CHAT = PoolKey(namespace="default", name="chat")


def routing_table(
    addresses: Iterable[str],
    *,
    pool: PoolKey = CHAT,
    version: int = 1,
    uid: str = "uid-1",
    model: str = "mock",
    policy: str = "round-robin",
    states: dict[str, InstanceState] | None = None,
    prefills_in_flight: int = 0,
    prefill_tokens_per_second: float = 6250.0,
    block_tokens: int = 512,
    ids: Iterable[str] | None = None,
    parameters: dict[str, Any] | None = None,
    early_rejection: EarlyRejectionFacts | None = None,
    pass_client_credentials: bool = False,
    engine_type: str = "simulated",
    roles: Iterable[Role] = (),
    modelled: ModelledFacts | None = None,
    continue_answers: str = "Disabled",
    hand_over_budget: float = 0.0,
    kv_transfer: KvTransferFacts | None = None,
) -> RoutingTable:
    """Return a table with one instance per address, called `i0`, `i1`, … unless `ids` are given; all have the role both
    by default.

    By default, an answer that breaks off is not continued at another instance, because scripted engines begin every
    answer from its start. By default, sessions are not handed over either, so that engines receive only the requests of
    a test's clients.
    """
    addresses = tuple(addresses)
    names = tuple(ids) if ids is not None else tuple(f"i{index}" for index in range(len(addresses)))
    states = states or {}
    return RoutingTable(
        pool=pool,
        uid=uid,
        version=version,
        generation=1,
        model=model,
        engine=EngineFacts(
            type=engine_type,
            port=8000,
            block_tokens=block_tokens,
            block_bytes=4 * block_tokens,
            prefill_tokens_per_second=prefill_tokens_per_second,
            pass_client_credentials=pass_client_credentials,
            modelled=modelled or ModelledFacts(),
            kv_transfer=kv_transfer,
        ),
        routing=RoutingFacts(
            policy=policy,
            parameters=parameters or {},
            prefills_in_flight=prefills_in_flight,
            continue_answers=continue_answers,
            hand_over_budget=hand_over_budget,
        ),
        session=SessionFacts(),
        slo=SloFacts(),
        early_rejection=early_rejection or EarlyRejectionFacts(),
        instances=tuple(
            InstanceEntry(id=name, address=address, role=role, state=states.get(name, InstanceState.SERVING))
            for name, address, role in zip(names, addresses, tuple(roles) or (Role.BOTH,) * len(names), strict=True)
        ),
    )
