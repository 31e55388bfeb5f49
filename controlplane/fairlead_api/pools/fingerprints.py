"""Tells whether two routing tables mean the same to routers."""

import hashlib
from dataclasses import replace

import msgspec

from fairlead.tables import RoutingTable


def fingerprint(table: RoutingTable) -> bytes:
    """SHA-256 of all that routers act on: everything but version and generation."""
    return hashlib.sha256(msgspec.json.encode(replace(table, version=0, generation=0), order="sorted")).digest()
