"""The addresses of all pages of a running Fairlead, with an example of each kind of record that its API has."""

from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import quote

from fairlead_web.frame.shells import POOL_TABS, SECTIONS
from fairlead_web.text.addresses import instance_path, pool_path, session_path

Ask = Callable[..., Any]
"""A function that GETs a path of the public API with a query and returns the decoded answer."""


def pages_of(ask: Ask, pool: str) -> Mapping[str, str]:
    """Return the paths of pages by a name that can be a file's name.

    `pool` is `namespace/name`. The page of a kind of record is left out if no such record exists yet.
    """
    at = pool_path(pool)
    found = {name: path for _, group in SECTIONS for name, _, path in group}
    found |= {f"pool-{name}": at + path for _, tabs in POOL_TABS for name, _, path in tabs}
    found |= {"reroutes": "/reroutes", "settings": "/settings", "help": "/help", "heatmap-table": f"{at}/heatmap?view=table"}
    found |= {"pause-migrations": "/pause-migrations", "search": f"/search?q={pool.rpartition('/')[2]}"}
    examples: tuple[tuple[str, str, Callable[[Any], str]], ...] = (
        ("instance", f"/v1/pools/{pool}/instances", lambda one: instance_path(pool, one["id"])),
        ("session", "/v1/sessions", lambda one: session_path(one["pool"], one["session"])),
        ("migration", "/v1/migrations", lambda one: f"/migrations/{quote(one['id'], safe='')}"),
        ("reroute", "/v1/reroutes", lambda one: f"/reroutes/{quote(one['id'], safe='')}"),
        ("decision", "/v1/decisions", lambda one: f"/decisions/{quote(one['id'], safe='')}"),
        ("audit-entry", "/v1/audit", lambda one: f"/audit/{one['id']}"),
        ("plan", "/v1/plans", lambda one: f"/plans/{quote(one['id'], safe='')}"),
        ("simulation", f"/v1/pools/{pool}/simulations", lambda one: f"{at}/simulator/{quote(one['id'], safe='')}"),
        ("schedule", "/v1/schedules", lambda one: f"/schedules/{one['pool']}/{quote(one['name'], safe='')}"),
    )
    for name, query, path_of in examples:
        for one in ask(query, limit=1)["items"]:
            found[name] = path_of(one)
    return found
