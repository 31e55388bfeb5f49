"""The table of Fairlead's processes: order, environment, and no secret on a command line."""

from pathlib import Path

import pytest

from fairlead_sandbox.postgres import PostgresServer, ServerUser
from fairlead_sandbox.process_table import ProcessCounts, SandboxPlan, preferred_ports, process_table
from fairlead_sandbox.processes import ProcessSpec, in_start_order
from fairlead_sandbox.secret_tokens import SecretTokens
from fairlead_sandbox.state_directory import StateDirectory, api_urls

TWO_ROUTERS = ProcessCounts()
TOKENS = SecretTokens(admin="a" * 20, operator="b" * 20, router="c" * 20)


async def nothing() -> None:
    return None


def a_plan(
    *, counts: ProcessCounts = TWO_ROUTERS, embedded: bool = True, own_kubernetes: bool = True, demo: bool = True, load: bool = True
) -> SandboxPlan:
    server = PostgresServer(
        binaries=Path("/pg/bin"),
        data=Path("/s/postgres"),
        socket_directory=Path("/s/run"),
        user=ServerUser(prefix=("unshare",)),
        settings={},
    )
    return SandboxPlan(
        directory=StateDirectory(root=Path("/s")),
        ports=preferred_ports(counts),
        counts=counts,
        tokens=TOKENS,
        database_url=server.url,
        own_kubernetes=own_kubernetes,
        postgres=server if embedded else None,
        node_grace_seconds=7.5,
        kubernetes_variables={"PROCESSKUBE_LOG_LEVEL": "INFO"},
        demo=demo,
        load=load,
        publish_kubeconfig=nothing,
        apply_definitions=nothing,
        apply_demo=nothing,
    )


def names(plan: SandboxPlan) -> list[str]:
    return [node.name for node in in_start_order(process_table(plan))]


def process(plan: SandboxPlan, name: str) -> ProcessSpec:
    found = next(node for node in process_table(plan) if node.name == name)
    assert isinstance(found, ProcessSpec)
    return found


@pytest.mark.parametrize("routers", [1, 2, 5])
def test_there_is_one_gateway_per_wish_each_on_its_own_port(routers: int) -> None:
    plan = a_plan(counts=ProcessCounts(routers=routers))
    assert [name for name in names(plan) if name.startswith("router-")] == [f"router-{number}" for number in range(routers)]
    assert list(plan.router_urls.values())[-1] == f"http://127.0.0.1:{8000 + routers - 1}"


def test_everything_is_in_the_table_once_and_in_an_order_that_exists() -> None:
    order = names(a_plan())
    assert set(order) == {
        *(
            "postgres",
            "kubernetes-api",
            "kubeconfig",
            "definitions",
            "kubelet",
            "api",
            "operator",
            "router-0",
            "router-1",
            "demo-pool",
            "load",
        )
    }
    assert order.index("postgres") < order.index("api") < order.index("operator") < order.index("demo-pool") < order.index("load")


def test_a_database_of_ones_own_replaces_the_embedded_one() -> None:
    assert "postgres" not in names(a_plan(embedded=False))


def test_a_cluster_replaces_the_sandboxs_kubernetes_api_and_nothing_waits_for_one() -> None:
    assert "kubernetes-api" not in names(a_plan(own_kubernetes=False))
    assert names(a_plan(own_kubernetes=False)).index("kubeconfig") < names(a_plan(own_kubernetes=False)).index("kubelet")


def test_a_sandbox_without_demo_has_neither_pool_nor_load() -> None:
    assert {"demo-pool", "load"}.isdisjoint(names(a_plan(demo=False, load=False)))


def test_no_secret_stands_on_a_command_line_where_everybody_could_read_it() -> None:
    for node in process_table(a_plan()):
        if isinstance(node, ProcessSpec):
            assert not any(secret in " ".join(node.command) for secret in (TOKENS.admin, TOKENS.operator, TOKENS.router))


def test_each_router_has_its_own_name_and_spool_and_only_the_routers_secret() -> None:
    first, second = process(a_plan(), "router-0").environment, process(a_plan(), "router-1").environment
    assert first["FAIRLEAD_ROUTER_ID"] != second["FAIRLEAD_ROUTER_ID"]
    assert first["FAIRLEAD_SPOOL_DIR"] != second["FAIRLEAD_SPOOL_DIR"]
    assert first["FAIRLEAD_API_TOKEN"] == TOKENS.router
    assert TOKENS.admin not in "".join(first.values())


def test_the_operator_stops_before_the_kubelet_so_that_no_instance_looks_lost() -> None:
    assert "kubelet" in process(a_plan(), "operator").needs


def test_of_several_apis_each_client_begins_with_another_and_knows_all() -> None:
    plan = a_plan(counts=ProcessCounts(routers=3, apis=2, operators=2))
    one, two = "http://127.0.0.1:8080", "http://127.0.0.1:8081"
    asked = [process(plan, name).environment["FAIRLEAD_API_URL"] for name in ("router-0", "router-1", "router-2")]
    assert asked == [f"{one},{two}", f"{two},{one}", f"{one},{two}"]
    assert {process(plan, name).environment["FAIRLEAD_PUBLIC_URL"] for name in ("api", "api-1")} == {one, two}
    assert set(process(plan, "router-0").needs) == {"api", "api-1"}
    assert api_urls({**plan.api_urls, **plan.router_urls, "kubernetes-api": "https://x"}) == (one, two)


def test_of_several_operators_each_has_its_own_name_in_the_lease_and_its_own_health() -> None:
    plan = a_plan(counts=ProcessCounts(apis=2, operators=2))
    first, second = (process(plan, name).environment for name in ("operator", "operator-1"))
    for variable in ("FAIRLEAD_OPERATOR_IDENTITY", "FAIRLEAD_OPERATOR_HEALTH_PORT"):
        assert first[variable] != second[variable]
