"""Type variables for the attributes whose types differ between a report and the public API."""

from typing import TypeVar

Pool = TypeVar("Pool")
"""The type by which a record names its pool: PoolKey in a report, `namespace/name` in the public API.

For the public API see `fairlead_client.resources`.
"""

Time = TypeVar("Time")
"""The type of a record's times: Unix seconds in a report, datetime in the public API."""
