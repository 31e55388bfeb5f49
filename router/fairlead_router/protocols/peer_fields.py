"""Request fields by which a client could make an engine connect to an address, or use the KV blocks of another request.

Only the gateway may set such fields, so it refuses requests that have them, in every protocol. The names come from the
handshakes of vLLM and llm-d, SGLang (`bootstrap_…`), TensorRT-LLM, LMDeploy and Dynamo (below `nvext`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fairlead_router.protocols.refusals import BadRequest

KV_TRANSFER = "kv_transfer_params"
"""vLLM's field, which the gateway itself sets if two instances compute one request."""

PEER_FIELDS = frozenset(
    {
        KV_TRANSFER, "ec_transfer_params",
        "do_remote_prefill", "do_remote_decode", "remote_engine_id", "remote_block_ids", "remote_host", "remote_port",
        "disagg_prefill_dp_rank", "http_worker_ipc",
        "disaggregated_params",
        "migration_request",
        "backend_instance_id", "prefill_worker_id", "decode_worker_id",
    }
)  # fmt: skip
_PREFIX = "bootstrap_"

_HOLDERS = frozenset({"extra_args", "extra_body", "nvext", "sampling_params", "vllm_xargs"})
"""Objects in a body whose fields an engine, or software in front of it, treats like fields of the request."""

_ADDRESSES = ("___prefill_addr_", "___decode_addr_")
"""Marks in a request id that are followed by the address of a peer, which vLLM's P2P connector reads."""

_IDS = ("request_id", "rid")
_WATCHED = PEER_FIELDS | _HOLDERS | set(_IDS)
"""Field names that make a full check of the body necessary. Almost no body has one of these fields."""


def is_peer_field(name: str) -> bool:
    """Return whether a field with this name may make an engine connect to a peer."""
    return name in PEER_FIELDS or name.startswith(_PREFIX)


def refuse_peers(document: Mapping[str, Any]) -> None:
    """Raise BadRequest if a body sets a peer field, or has a request id with the address of a peer."""
    if not _WATCHED.isdisjoint(document) or _PREFIX in "\n".join(document):
        _refuse_peers(document)


def _refuse_peers(document: Mapping[str, Any]) -> None:
    holders: list[tuple[str, Mapping[str, Any]]] = [("", document)]
    for path, holder in holders:  # grows
        for name, value in holder.items():
            if name in PEER_FIELDS or name.startswith(_PREFIX):
                if value is not None:
                    raise refused_peer(path + name)
            elif name in _HOLDERS and isinstance(value, dict):
                holders.append((f"{path[:200]}{name}.", value))
    for name in _IDS:
        if (named := document.get(name)) is not None:
            refuse_peer_addresses(name, str(named) if isinstance(named, str | list) else "")


def refuse_peer_addresses(field: str, request_id: str) -> None:
    """Raise BadRequest if a request id has the address of a peer. `field`: the header or body field with the request
    id.
    """
    if any(mark in request_id for mark in _ADDRESSES):
        raise refused_peer(field)


def refused_peer(field: str) -> BadRequest:
    """Return the 400 for a field that only the gateway may set."""
    return BadRequest(400, "invalid_field", f"{field}: only the gateway may point an engine at a peer; leave it out", field)
