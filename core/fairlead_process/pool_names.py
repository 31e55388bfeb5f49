"""The form of a pool's name in every command: `NAME` in the namespace of `-n`, or `NAMESPACE/NAME`."""

from collections.abc import Callable
from dataclasses import replace
from functools import wraps
from typing import Any

import click

from fairlead.errors import InvalidInput
from fairlead.tables import PoolKey

METAVAR = "[NAMESPACE/]NAME"
USUAL_NAMESPACE = "fairlead.namespace"
"""Key of the click context's `meta` for a function that returns a namespace. This namespace is used if neither the name
nor `-n` contains one. Without this key, the namespace is `default`.
"""

namespace_option = click.option(
    "-n", "--namespace", help="Namespace of a pool that is named without one; default: kubectl's for `kubectl fairlead`, else `default`."
)


def name_argument(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the argument NAME and `-n` to a command, which gets them as one `name`, namespace/name."""

    @click.argument("name", metavar=METAVAR)
    @namespace_option
    @wraps(command)
    def with_name(*arguments: Any, name: str, namespace: str | None, **options: Any) -> Any:
        return command(*arguments, name=str(pool_named(name, namespace)), **options)

    return with_name


def pool_argument(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the argument NAME and `-n` to a command about all pools, which gets them as one `pool`, namespace/name; None
    = all. `--pool NAME` is the older spelling.
    """

    @click.argument("name", metavar=f"[{METAVAR}]", required=False)
    @click.option("--pool", "pool_before", metavar=METAVAR, hidden=True, help="Only of this pool.")
    @namespace_option
    @wraps(command)
    def with_pool(*arguments: Any, name: str | None, pool_before: str | None, namespace: str | None, **options: Any) -> Any:
        if name is not None and pool_before is not None:
            raise InvalidInput("--pool", pool_before, f"leave it out; the pool is named already: {name}")
        pool = optional_pool(name or pool_before, namespace, "NAME" if pool_before is None else "--pool")
        return command(*arguments, pool=None if pool is None else str(pool), **options)

    return with_pool


def optional_pool(name: str | None, namespace: str | None, option: str = "--pool") -> PoolKey | None:
    """Return the named pool; None if no pool is named. Raises InvalidInput, also for a namespace without a name."""
    if name is not None:
        return pool_named(name, namespace, option)
    if namespace is not None:
        raise InvalidInput("--namespace", namespace, "name a pool of that namespace too, or leave the namespace out")
    return None


def pool_named(name: str, namespace: str | None = None, option: str = "NAME") -> PoolKey:
    """Return the pool with this name, in `namespace` if the name does not contain a namespace. Raises InvalidInput,
    which names `option`.
    """
    context = click.get_current_context(silent=True)
    usual = None if context is None else context.meta.get(USUAL_NAMESPACE)
    try:
        found = PoolKey.named(name)
        if "/" not in name and (place := namespace or (usual and usual())):
            found = replace(found, namespace=place)
    except ValueError as remedy:
        raise InvalidInput(option, name, str(remedy)) from None
    if namespace is not None and found.namespace != namespace:
        raise InvalidInput("--namespace", namespace, f"leave it out: {name} names its namespace itself")
    return found
