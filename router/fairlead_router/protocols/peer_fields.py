"""Request fields that would make an engine connect to an address, or use another request's KV blocks, of the client's
choice.

Only the gateway may set such fields, so it refuses clients' requests that have them, in every protocol. The names come
from vLLM's and llm-d's handshakes, of SGLang (`bootstrap_…`), TensorRT-LLM, LMDeploy and Dynamo (below `nvext`).
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
"""Objects in a body whose fields are treated as fields of the request, by an engine or by software in front of it."""

_ADDRESSES = ("___prefill_addr_", "___decode_addr_")
"""Markers in a request id after which vLLM's P2P connector reads the address of a peer."""

_IDS = ("request_id", "rid")
_WATCHED = PEER_FIELDS | _HOLDERS | set(_IDS)
"""Field names that trigger a full check. Almost no body has one of these fields."""


def is_peer_field(name: str) -> bool:
    """Return whether a field of this name may make an engine connect to a peer."""
    return name in PEER_FIELDS or name.startswith(_PREFIX)


def refuse_peers(document: Mapping[str, Any]) -> None:
    """Raise BadRequest for a body that sets a peer field, or has a request id with the address of a peer."""
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
    """Raise BadRequest for a request id, from the header or body field `field`, that has the address of a peer."""
    if any(mark in request_id for mark in _ADDRESSES):
        raise refused_peer(field)


def refused_peer(field: str) -> BadRequest:
    """Return the 400 for a field that only the gateway may set."""
    return BadRequest(400, "invalid_field", f"{field}: only the gateway may point an engine at a peer; leave it out", field)
