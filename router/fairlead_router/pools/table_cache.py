"""Keeps the last known tables, bindings, cached prefixes and gateway keys on disk, so that a restarted router serves at
once, even while the control API cannot be reached.

The tables are one file, which is rewritten as a whole. The keys are another such file; only their digests are stored.
Bindings are a log of lines, in which a later line overrides an earlier one. The log is compacted when it has grown to
twice its size. Compacting drops a binding to an instance that has left, unless something mentioned the binding within
the pool's TTL. An incomplete last line, from a crash while writing, is ignored. One packed file has the prefixes that
instances are assumed to have cached. The number of live routers, the measurements of engines and the mark of a running
process are one file each.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import msgspec

from fairlead.gateway_keys import GatewayKeyFacts
from fairlead.reports.bindings import Binding
from fairlead.reports.engines import EngineMemory
from fairlead.routing.contracts.schedulers import PrefixMemory
from fairlead.tables import PoolKey, RoutingTable
from fairlead.values import value

_SLACK = 10_000
"""The binding log is compacted when it has more lines than twice its length after the last compaction, plus this
number.
"""

logger = logging.getLogger(__name__)

_tables = msgspec.json.Decoder(tuple[RoutingTable, ...])
_gateway_keys = msgspec.json.Decoder(tuple[GatewayKeyFacts, ...])
_binding = msgspec.json.Decoder(Binding)
_encoder = msgspec.json.Encoder()
_prefixes = msgspec.msgpack.Decoder(tuple[PrefixMemory, ...])
_packer = msgspec.msgpack.Encoder()


@value
class KeptRouters:
    """The number of routers that the control API reported as live, and the time of the report (Unix seconds)."""

    live: int
    told_at: float


@value
class KeptLife:
    """The mark that a process writes while it runs, and removes when it stops properly. `memory`: the bytes of memory
    that the process used at the time `at` (Unix seconds). `available`: the bytes that it could use.
    """

    memory: int
    available: int
    at: float


_routers = msgspec.json.Decoder(KeptRouters)
_life = msgspec.json.Decoder(KeptLife)
_engines = msgspec.json.Decoder(tuple[EngineMemory, ...])


def replace_file(path: Path, content: bytes) -> None:
    """Write a file so that after a crash the file has either the old or the new content."""
    temporary = path.with_name(path.name + ".tmp")
    temporary.write_bytes(content)
    temporary.replace(path)


class TableCache:
    """Reads and writes tables, bindings, gateway keys and further state in files of `directory`. `now` returns the
    control API's time in Unix seconds.

    Errors of writing are logged and counted in `failures`; the router then continues without the cache.
    """

    def __init__(self, directory: Path, now: Callable[[], float]) -> None:
        self._now = now
        self._tables_path = directory / "tables.json"
        self._keys_path = directory / "gateway-keys.json"
        self._bindings_path = directory / "bindings.ndjson"
        self._prefixes_path = directory / "prefixes.msgpack"
        self._routers_path = directory / "routers.json"
        self._engines_path = directory / "engines.json"
        self._life_path = directory / "running.json"
        self._bindings: dict[tuple[PoolKey, str], Binding] = {}
        self._tables: dict[PoolKey, RoutingTable] = {}
        self._lines = 0
        self._compact_at = _SLACK
        self.failures = 0

    def load(self) -> tuple[tuple[RoutingTable, ...], tuple[Binding, ...]]:
        """Return the stored tables and bindings. A damaged file counts as missing, and is logged."""
        tables: tuple[RoutingTable, ...] = ()
        try:
            tables = _tables.decode(self._tables_path.read_bytes())
        except FileNotFoundError:
            pass
        except (OSError, msgspec.DecodeError) as error:
            logger.warning("cached routing tables unusable", extra={"file": str(self._tables_path), "error": str(error)})
        try:
            lines = self._bindings_path.read_bytes().split(b"\n")
        except OSError:
            lines = []
        for line in lines:
            with contextlib.suppress(msgspec.DecodeError):  # a torn line
                if line:
                    self._remember(_binding.decode(line))
        self._lines = len(lines)
        self._tables = {table.pool: table for table in tables}
        return tables, tuple(self._bindings.values())

    def load_gateway_keys(self) -> tuple[GatewayKeyFacts, ...] | None:
        """Return the stored keys; None if no keys were ever stored. A damaged file counts as missing, and is logged."""
        try:
            return _gateway_keys.decode(self._keys_path.read_bytes())
        except FileNotFoundError:
            pass
        except (OSError, msgspec.DecodeError) as error:
            logger.warning("cached gateway keys unusable", extra={"file": str(self._keys_path), "error": str(error)})
        return None

    def load_prefixes(self) -> tuple[PrefixMemory, ...]:
        """Return the prefixes that instances are assumed to have cached. A damaged file counts as missing, and is
        logged.
        """
        try:
            return _prefixes.decode(self._prefixes_path.read_bytes())
        except FileNotFoundError:
            pass
        except (OSError, msgspec.DecodeError) as error:
            logger.warning("kept prefixes unusable", extra={"file": str(self._prefixes_path), "error": str(error)})
        return ()

    def keep_prefixes(self, memories: Sequence[PrefixMemory]) -> None:
        """Replace the stored prefixes that instances are assumed to have cached."""
        self._guard(lambda: replace_file(self._prefixes_path, _packer.encode(tuple(memories))))

    def load_routers(self) -> KeptRouters | None:
        """Return the last number of routers; None if no number was ever stored. A damaged file counts as missing, and
        is logged.
        """
        try:
            return _routers.decode(self._routers_path.read_bytes())
        except FileNotFoundError:
            pass
        except (OSError, msgspec.DecodeError) as error:
            logger.warning("kept number of routers unusable", extra={"file": str(self._routers_path), "error": str(error)})
        return None

    def keep_routers(self, kept: KeptRouters) -> None:
        """Replace the stored number of routers."""
        self._guard(lambda: replace_file(self._routers_path, _encoder.encode(kept)))

    def load_life(self) -> KeptLife | None:
        """Return the mark of the previous process; None if that process stopped properly. For a damaged file, return a
        mark with zeros.
        """
        try:
            return _life.decode(self._life_path.read_bytes())
        except FileNotFoundError:
            return None
        except (OSError, msgspec.DecodeError):
            return KeptLife(memory=0, available=0, at=0.0)

    def keep_life(self, life: KeptLife) -> None:
        """Write the mark of this process, which is running."""
        self._guard(lambda: replace_file(self._life_path, _encoder.encode(life)))

    def end_life(self) -> None:
        """Remove the mark of this process, because it stops properly."""
        self._guard(lambda: self._life_path.unlink(missing_ok=True))

    def load_engines(self) -> tuple[EngineMemory, ...]:
        """Return the stored measurements of engines. A damaged file counts as missing, and is logged."""
        try:
            return _engines.decode(self._engines_path.read_bytes())
        except FileNotFoundError:
            pass
        except (OSError, msgspec.DecodeError) as error:
            logger.warning("the stored observations of engines are unusable", extra={"file": str(self._engines_path), "error": str(error)})
        return ()

    def keep_engines(self, memories: Sequence[EngineMemory]) -> None:
        """Replace the stored measurements of engines."""
        self._guard(lambda: replace_file(self._engines_path, _encoder.encode(tuple(memories))))

    def keep_gateway_keys(self, keys: Sequence[GatewayKeyFacts]) -> None:
        """Replace the stored keys."""
        self._guard(lambda: replace_file(self._keys_path, _encoder.encode(tuple(keys))))

    def keep_tables(self, tables: Iterable[RoutingTable]) -> None:
        """Replace the stored tables."""
        self._tables = {table.pool: table for table in tables}
        self._guard(lambda: replace_file(self._tables_path, _encoder.encode(tuple(self._tables.values()))))

    def keep_bindings(self, bindings: Sequence[Binding]) -> None:
        """Add or replace these sessions' bindings. A binding without an instance removes its session's binding."""
        if not bindings:
            return
        for binding in bindings:
            self._remember(binding)
        self._lines += len(bindings)
        if self._lines > self._compact_at:
            self._compact()
            return

        def append() -> None:
            with self._bindings_path.open("ab") as log:
                log.write(b"\n" + b"\n".join(_encoder.encode(binding) for binding in bindings) + b"\n")

        self._guard(append)

    def replace_bindings(self, bindings: Sequence[Binding]) -> None:
        """Replace all bindings by the bindings in a complete snapshot of the control API."""
        self._bindings = {}
        for binding in bindings:
            self._remember(binding)
        self._compact()

    def drop_pool(self, pool: PoolKey) -> None:
        """Remove the bindings of a deleted pool."""
        self._bindings = {key: binding for key, binding in self._bindings.items() if key[0] != pool}
        self._compact()

    def _remember(self, binding: Binding) -> None:
        key = (binding.pool, binding.session)
        if binding.instance is None:
            self._bindings.pop(key, None)
        else:
            known = self._bindings.get(key)
            if known is None or known.version <= binding.version:
                self._bindings[key] = binding

    def _compact(self) -> None:
        instances = {pool: {entry.id for entry in table.instances} for pool, table in self._tables.items()}
        now = self._now()

        def matters(binding: Binding) -> bool:
            table = self._tables.get(binding.pool)
            told_at = binding.migrated_at or binding.bound_at
            return table is None or binding.instance in instances[binding.pool] or now - told_at <= table.session.ttl_seconds

        self._bindings = {key: binding for key, binding in self._bindings.items() if matters(binding)}
        self._lines = len(self._bindings)
        self._compact_at = 2 * self._lines + _SLACK
        content = b"".join(_encoder.encode(binding) + b"\n" for binding in self._bindings.values())
        self._guard(lambda: replace_file(self._bindings_path, content))

    def _guard(self, write: Callable[[], None]) -> None:
        try:
            write()
        except OSError as error:
            self.failures += 1
            logger.warning("cannot write the cache", extra={"error": str(error)})
