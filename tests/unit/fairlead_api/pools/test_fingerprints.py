"""When two routing tables count as equal."""

from fairlead.instances import InstanceState, Role
from fairlead.pool_states import InstanceReport
from fairlead.pools import parse_spec
from fairlead.table_content import changed_entries, table_of
from fairlead.tables import PoolKey
from fairlead_api.pools.mirroring import fingerprint

POOL = PoolKey(namespace="n", name="p")


def report(name: str, state: InstanceState, address: str | None = "127.0.0.1:8000", weight: float = 1.0) -> InstanceReport:
    return InstanceReport(id=name, pod_uid="u", address=address, role=Role.BOTH, state=state, reason="r", weight=weight, created_at=0.0)


def test_only_what_routers_act_on_changes_a_tables_fingerprint() -> None:
    facts = parse_spec({"model": "m"}).facts()
    one = table_of(POOL, "u", 1, facts, [report("a", InstanceState.SERVING), report("b", InstanceState.SERVING)])
    same = table_of(POOL, "u", 9, facts, [report("b", InstanceState.SERVING), report("a", InstanceState.SERVING)])
    other = table_of(POOL, "u", 1, facts, [report("a", InstanceState.SERVING), report("b", InstanceState.DRAINING)])
    assert fingerprint(one) == fingerprint(same)
    assert fingerprint(one) != fingerprint(other) != fingerprint(table_of(POOL, "v", 1, facts, []))
    assert changed_entries(one, other) == {"b"}
    assert changed_entries(None, one) == {"a", "b"}
