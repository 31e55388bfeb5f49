"""Each process accepts its command and its environment as the chart renders them."""

from collections.abc import Callable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from fairlead_api import migrating
from fairlead_api.settings import DatabaseSettings, parse_bootstrap_tokens
from fairlead_cli.subcommands import SUBCOMMANDS
from fairlead_host.settings import HostSettings
from fairlead_host.settings import read_settings as read_host_settings
from fairlead_operator.settings import OperatorSettings
from fairlead_operator.settings import read_settings as read_operator_settings
from fairlead_process.environment import names, read, unread
from fairlead_process.starting import FaultSettings
from fairlead_router.limits import needed_memory
from fairlead_router.settings import MEBIBYTE, RouterSettings, Sizes
from fairlead_router.settings import read_settings as read_router_settings
from fairlead_testing.running.chart import Render
from fairlead_testing.running.helm import Document, HelmRefused, Release
from fairlead_testing.worlds.chart_values import BUNDLED, EVERYTHING, EXTERNAL, OIDC, merged
from processkube.kubelet.expansion import expand

SECRET = "a-secret-of-at-least-16-characters"
URL = "postgresql://app:p%40ss@db-rw.data:5432/app"
READERS: dict[str, tuple[Callable[[Mapping[str, str]], Any], type[Any]]] = {
    "router": (read_router_settings, RouterSettings),
    "api": (read_host_settings, HostSettings),
    "operator": (read_operator_settings, OperatorSettings),
    "migrations": (migrating.read_settings, DatabaseSettings),
}


def container(release: Release, process: str) -> Document:
    """Return the only container of a process's pods."""
    (only,) = containers(release, process)
    return only


def containers(release: Release, process: str) -> list[Document]:
    """Return the containers of a process's pods."""
    for document in release.every():
        if document["metadata"]["name"] == f"test-fairlead-{process}" and document["kind"] in {"Deployment", "StatefulSet", "Job"}:
            found: list[Document] = document["spec"]["template"]["spec"]["containers"]
            return found
    raise AssertionError(f"no workload of {process}")


def environment(found: Document, folder: Path) -> dict[str, str]:
    """Return the variables as a kubelet would set them. Paths of volumes are in `folder`."""
    variables: dict[str, str] = {}
    for one in found["env"]:
        assert one["name"] not in variables, f"{one['name']} is set twice"
        source = one.get("valueFrom", {})
        if "secretKeyRef" in source:
            value = URL if one["name"] == "FAIRLEAD_DATABASE_URL" else SECRET
        elif "fieldRef" in source:
            fields = {"metadata.name": f"test-fairlead-{found['name']}-0", "metadata.namespace": "rendering", "status.podIP": "10.0.0.7"}
            value = fields[source["fieldRef"]["fieldPath"]]
        else:
            value = expand(one["value"], variables)
        if value.startswith("/"):
            assert any(value.startswith(mount["mountPath"]) for mount in found["volumeMounts"]), f"{value} is on no volume"
            value = str(folder / value.lstrip("/"))
        variables[one["name"]] = value
    return variables


def settings_of(release: Release, process: str, folder: Path) -> Any:
    """Return the process's settings, read from the chart's variables; every variable must be one that it has."""
    keys = folder / "etc/fairlead/gateway-keys/keys"
    keys.parent.mkdir(parents=True, exist_ok=True)
    keys.write_text(f"{SECRET}\n", encoding="utf-8")
    reader, known = READERS[process]
    variables = environment(container(release, process), folder)
    assert unread(variables, names(known, FaultSettings)) == {}
    return reader(variables)


@pytest.fixture(scope="module")
def external(render: Render) -> Release:
    return render(EXTERNAL)


def test_the_router_keeps_its_name_and_its_spool_and_asks_for_keys(external: Release, tmp_path: Path) -> None:
    settings = settings_of(external, "router", tmp_path)
    assert settings.api_urls == ("http://test-fairlead-api:8080",)
    assert settings.router_id == "test-fairlead-router-0"
    assert (settings.gateway_keys_required, settings.gateway_keys) == (True, (SECRET,))
    assert settings.spool_dir == tmp_path / "var/spool/fairlead"
    assert settings.logs.format == "json"


def test_several_processes_of_a_pod_share_the_clients_port_and_nothing_else(render: Render, tmp_path: Path) -> None:
    release = render(merged(EXTERNAL, {"router": {"processes": 3}, "gatewayKeys": {"required": False}}))
    found = containers(release, "router")
    settings = [read_router_settings(environment(one, tmp_path)) for one in found]
    assert len({one.router_id for one in settings}) == len({one.spool_dir for one in settings}) == 3
    for one, process in zip(found, settings, strict=True):
        assert process.router_id.startswith("test-fairlead-router"), "the token speaks for it"
        command = one["command"]
        assert (command[command.index("--port") + 1], "--socket-reuse" in command) == ("8000", True)
        (admin,) = [port for port in one["ports"] if port["name"].startswith("admin")]
        assert command[command.index("--admin-port") + 1] == str(admin["containerPort"])
        probes = [one[name]["httpGet"]["port"] for name in ("startupProbe", "livenessProbe", "readinessProbe")]
        assert probes == [admin["name"]] * 3, "a probe at the shared port could reach another process"
    assert len({port["containerPort"] for one in found for port in one["ports"]}) == 7


def test_routers_ask_each_other_at_their_pods_addresses_unless_that_is_switched_off(render: Render, tmp_path: Path) -> None:
    release = render(merged(EVERYTHING, {"router": {"processes": 2}, "gatewayKeys": {"required": False}}))
    found = containers(release, "router")
    settings = [read_router_settings(environment(one, tmp_path)) for one in found]
    assert [(one.ask_host, one.ask_port) for one in settings] == [("10.0.0.7", 9100), ("10.0.0.7", 9101)]
    ports = {port["name"]: port["containerPort"] for one in found for port in one["ports"]}
    assert (ports["ask"], ports["ask-1"]) == (9100, 9101)
    (policy,) = [one for one in release.every() if one["kind"] == "NetworkPolicy" and one["metadata"]["name"].endswith("-router")]
    (rule,) = [rule for rule in policy["spec"]["ingress"] if {"port": "ask"} in rule["ports"]]
    assert rule["ports"] == [{"port": "ask"}, {"port": "ask-1"}]
    assert rule["from"] == [{"podSelector": policy["spec"]["podSelector"]}], "nobody but routers of this release"
    alone = render(merged(EVERYTHING, {"router": {"decideTogether": False}}))
    assert settings_of(alone, "router", tmp_path).ask_host is None
    assert "ask" not in {port["name"] for port in container(alone, "router")["ports"]}


def test_without_keys_required_the_router_asks_for_none(render: Render, tmp_path: Path) -> None:
    release = render(merged(EXTERNAL, {"gatewayKeys": {"required": False}}))
    settings = settings_of(release, "router", tmp_path)
    assert (settings.gateway_keys_required, settings.gateway_keys) == (False, ())


def test_the_api_asks_the_identity_provider_with_the_clients_secret_and_needs_no_right_to_review_tokens(
    render: Render, tmp_path: Path
) -> None:
    release = render(merged(EXTERNAL, OIDC))
    settings = settings_of(release, "api", tmp_path).api
    assert (settings.auth_mode, settings.oidc.issuer, settings.oidc.client_secret) == ("oidc", "https://id.example.com", SECRET)
    assert settings.oidc.given.of("ann", ["ml-team"])[1] == {"team-a": "operator"}
    assert [one for one in release.every() if one["metadata"]["name"].endswith("-logins")] == []
    public = render(merged(EXTERNAL, OIDC, {"api": {"oidcClientSecret": {"name": ""}}}))
    assert settings_of(public, "api", tmp_path).api.oidc.client_secret is None


def test_tokens_of_other_clusters_are_mounted_where_the_api_looks_for_them(render: Render, tmp_path: Path) -> None:
    named = {"FAIRLEAD_CLUSTERS": "berlin=https://berlin.example.com"}
    release = render(merged(EXTERNAL, {"api": {"settings": named, "clusterTokensSecret": "cluster-tokens"}}))
    clusters = settings_of(release, "api", tmp_path).clusters
    (api,) = (one for one in release.every() if (one["kind"], one["metadata"]["name"]) == ("Deployment", "test-fairlead-api"))
    secrets = [one["secret"] for one in api["spec"]["template"]["spec"]["volumes"] if "secret" in one]
    assert [one.name for one in clusters.clusters] == ["berlin"]
    assert clusters.tokens_dir == str(tmp_path / "etc/fairlead/cluster-tokens")
    assert secrets == [{"secretName": "cluster-tokens"}]


def test_the_api_knows_the_tokens_of_the_others_and_leaves_migrations_to_the_job(external: Release, tmp_path: Path) -> None:
    settings = settings_of(external, "api", tmp_path)
    assert {(token.role, token.name) for token in settings.api.bootstrap_tokens} == {
        ("system-operator", "operator"),
        ("system-router", "test-fairlead-router"),
        ("viewer", "metrics"),
        ("admin", "admin"),
    }
    assert settings.api.database_url == URL.replace("postgresql://", "postgresql+psycopg://")
    assert not settings.api.migrate
    assert settings_of(external, "migrations", tmp_path).url == settings.api.database_url
    assert settings.public_url == "http://localhost:8080"


def test_the_routers_token_speaks_for_each_router(external: Release, tmp_path: Path) -> None:
    router = environment(container(external, "router"), tmp_path)["FAIRLEAD_ROUTER_ID"]
    tokens = parse_bootstrap_tokens(environment(container(external, "api"), tmp_path)["FAIRLEAD_BOOTSTRAP_TOKENS"])
    (name,) = [token.name for token in tokens if token.role == "system-router"]
    assert router.startswith(f"{name}-")


def test_with_the_bundled_postgres_the_api_migrates_itself(render: Render, tmp_path: Path) -> None:
    release = render(BUNDLED)
    settings = settings_of(release, "api", tmp_path)
    assert settings.api.migrate
    assert settings.api.database_url == f"postgresql+psycopg://fairlead:{SECRET}@test-fairlead-postgres:5432/fairlead"
    assert release.hooks == []


def test_the_operator_holds_the_lease_by_its_pods_name_in_its_own_namespace(render: Render, tmp_path: Path) -> None:
    release = render(merged(EXTERNAL, {"operator": {"watchNamespaces": ["rendering", "default"], "engineImage": "engine:1"}}))
    settings = settings_of(release, "operator", tmp_path)
    assert (settings.identity, settings.lease.namespace) == ("test-fairlead-operator-0", "rendering")
    assert settings.namespaces == ("rendering", "default")
    assert settings.engine_image == "engine:1"
    assert settings.health_port == 8081


OTHER_SETTINGS: dict[str, dict[str, Any]] = {
    "router": {"FAIRLEAD_SPOOL_MAX_BYTES": 134217728, "FAIRLEAD_DECISION_SAMPLE_RATE": 0.25, "FAIRLEAD_TOTAL_TIMEOUT_SECONDS": 3600},
    "api": {"FAIRLEAD_KEEP_HISTORY_DAYS": 36500, "FAIRLEAD_DEBUG": 1},
    "operator": {"FAIRLEAD_OPERATOR_LEASE_SECONDS": 30, "FAIRLEAD_OPERATOR_RESYNC_SECONDS": 2.5},
}


def test_further_settings_reach_the_process_as_they_were_written(render: Render, tmp_path: Path) -> None:
    release = render(merged(EVERYTHING, {process: {"settings": found} for process, found in OTHER_SETTINGS.items()}))
    router, api, operator = (settings_of(release, process, tmp_path) for process in ("router", "api", "operator"))
    assert (router.spool_max_bytes, router.decision_sample_rate, router.timeouts.total) == (134217728, 0.25, 3600)
    assert api.api.retention.history_days == 36500
    assert (operator.lease.seconds, operator.pace.settled) == (30, 2.5)
    assert api.public_url == "https://ops.example.com/fairlead"


def test_variables_of_libraries_reach_the_api_beside_its_settings(render: Render, tmp_path: Path) -> None:
    others = {"FORWARDED_ALLOW_IPS": "10.244.0.0/16,127.0.0.1", "WEB_CONCURRENCY": 1}
    release = render(merged(EXTERNAL, {"api": {"settings": {"FAIRLEAD_SIMULATION_PROCESSES": 0}, "environment": others}}))
    assert settings_of(release, "api", tmp_path).api.simulation_processes == 0
    assert {*others.items()} - {("WEB_CONCURRENCY", 1)} <= environment(container(release, "api"), tmp_path).items()
    assert environment(container(release, "api"), tmp_path)["WEB_CONCURRENCY"] == "1"
    for process in ("router", "operator"):
        assert environment(container(release, process), tmp_path).keys() & others.keys() == set()


def test_the_api_becomes_ready_with_its_database_and_stays_in_its_service_without(external: Release) -> None:
    found = container(external, "api")
    assert (found["startupProbe"]["httpGet"]["path"], found["readinessProbe"]["httpGet"]["path"]) == ("/readyz", "/healthz")
    wait = float(found["command"][found["command"].index("--wait-for-database") + 1])
    assert found["startupProbe"]["periodSeconds"] * found["startupProbe"]["failureThreshold"] > 2 * wait


def test_migrations_run_in_a_pod_like_the_apis_which_no_service_selects(render: Render, tmp_path: Path) -> None:
    like = {
        "environment": {"PGSSLROOTCERT": "/tmp/ca.crt"},
        "nodeSelector": {"role": "system"},
        "tolerations": [{"key": "system", "operator": "Exists"}],
        "affinity": {"nodeAffinity": {}},
        "priorityClassName": "high",
        "podLabels": {"team": "a"},
        "podAnnotations": {"note": "x"},
    }
    release = render(merged(EVERYTHING, {"api": like, "imagePullSecrets": ["pull"]}))
    api, job = (
        next(one for one in release.every() if (one["kind"], one["metadata"]["name"]) == named)["spec"]["template"]
        for named in (("Deployment", "test-fairlead-api"), ("Job", "test-fairlead-migrations"))
    )
    for field in ("nodeSelector", "tolerations", "affinity", "priorityClassName", "securityContext", "imagePullSecrets"):
        assert job["spec"][field] == api["spec"][field]
    assert job["metadata"]["annotations"] == {"note": "x"}
    component = {"app.kubernetes.io/component": "migrations"}
    assert job["metadata"]["labels"] == api["metadata"]["labels"] | component
    assert environment(container(release, "migrations"), tmp_path)["PGSSLROOTCERT"] == str(tmp_path / "tmp/ca.crt")


def test_simulated_engines_come_from_the_registry_of_the_other_images(render: Render, tmp_path: Path) -> None:
    mirrored = merged(EXTERNAL, {"imageRegistry": "registry.example.com/mirror/"})
    release = render(mirrored)
    operator = container(release, "operator")["image"]
    assert settings_of(release, "operator", tmp_path).engine_image == operator.replace("fairlead/operator", "fairlead/engine")
    named = render(merged(mirrored, {"operator": {"engineImage": "engine:1"}}))
    assert settings_of(named, "operator", tmp_path).engine_image == "engine:1"
    assert "FAIRLEAD_ENGINE_IMAGE" not in environment(container(render(EXTERNAL), "operator"), tmp_path), "the operator's own default"


def test_the_spool_of_a_pod_has_room_for_each_of_its_processes(render: Render) -> None:
    def room(size: str, processes: int, **settings: int) -> Document:
        return merged(BUNDLED, {"router": {"spool": {"size": size}, "processes": processes, "settings": settings}})

    (default,) = [int(str(one.default)) for one in fields(RouterSettings) if one.name == "spool_max_bytes"]
    for enough in (room("80Mi", 1), room("1Gi", 12), room("0.5G", 4, FAIRLEAD_SPOOL_MAX_BYTES=100_000_000)):
        render(enough)
    for size, processes, settings, least in (
        ("79Mi", 1, {}, default * 5 // 4),
        ("1Gi", 16, {}, default * 20),
        ("1Gi", 1, {"FAIRLEAD_SPOOL_MAX_BYTES": 1 << 30}, (1 << 30) * 5 // 4),
    ):
        with pytest.raises(HelmRefused, match=rf"router\.spool\.size: {size} is too little.* {least};"):
            render(room(size, processes, **settings))


MEMORY = [
    {},
    {"FAIRLEAD_MAX_BODY_BYTES": 1024, "FAIRLEAD_MAX_UPLOAD_BYTES": 1024, "FAIRLEAD_KEPT_PROMPTS_BYTES": 0},
    {"FAIRLEAD_MAX_BODY_BYTES": 300_000_001},
    {"FAIRLEAD_MAX_UPLOAD_BYTES": 5_000_000_000},
    {"FAIRLEAD_BODY_MEMORY_BYTES": 123_456_789, "FAIRLEAD_KEPT_PROMPTS_BYTES": 7},
]


@pytest.mark.parametrize("settings", MEMORY, ids=str)
def test_a_routers_limit_of_memory_is_what_its_settings_need(settings: dict[str, int], render: Render) -> None:
    release = render(merged(EXTERNAL, {"crds": {"install": False}, "router": {"settings": settings}}))
    sizes = read(Sizes, {name: str(value) for name, value in settings.items()})
    limits = container(release, "router")["resources"]["limits"]
    assert limits == {"memory": f"{needed_memory(sizes) // MEBIBYTE}Mi"}


def test_a_limit_of_ones_own_counts_and_the_notes_say_if_it_is_too_little(render: Render) -> None:
    def rendered(limits: Document | None) -> Release:
        return render(merged(EXTERNAL, {"crds": {"install": False}, "router": {"resources": {"limits": limits}}}))

    small, large, none = rendered({"memory": "512Mi"}), rendered({"memory": "2Gi", "cpu": "3"}), rendered(None)
    assert container(small, "router")["resources"]["limits"] == {"memory": "512Mi"}
    assert "router.resources.limits.memory gives it: 1024Mi by its settings, and it has 512Mi" in small.notes
    assert container(large, "router")["resources"]["limits"] == {"memory": "2Gi", "cpu": "3"}
    assert "router.resources.limits" not in large.notes
    assert "limits" not in container(none, "router")["resources"]


@pytest.mark.parametrize("process", ["router", "api", "operator"])
def test_the_command_is_one_that_fairlead_has(process: str, external: Release) -> None:
    program, name, *options = container(external, process)["command"]
    command = SUBCOMMANDS[name].load()
    assert (program, name) == ("fairlead", process)
    context = command.make_context(name, options)
    assert context.params.get("host", "0.0.0.0") == "0.0.0.0"


def test_the_migrations_command_is_one_that_the_api_has(external: Release) -> None:
    python, flag, module, *options = container(external, "migrations")["command"]
    assert (python, flag, module) == ("python", "-m", migrating.__name__)
    assert isinstance(migrating.main, click.Command)
    assert migrating.main.make_context(module, options).params == {"wait_for_database": 60.0}


def test_the_bundled_databases_image_comes_from_its_own_registry(render: Render) -> None:
    bundled = {"database": {"bundled": {"enabled": True}}, "imageRegistry": "registry.example.com"}
    assert container(render(bundled), "postgres")["image"] == "postgres:18.1", "only Fairlead's images are built and pushed"
    mirrored = merged(bundled, {"database": {"bundled": {"image": {"registry": "mirror.example.com/library"}}}})
    assert container(render(mirrored), "postgres")["image"] == "mirror.example.com/library/postgres:18.1"


def test_engines_get_the_names_of_the_pull_secrets(render: Render, tmp_path: Path) -> None:
    release = render(merged(EXTERNAL, {"imagePullSecrets": ["pull", "other"]}))
    assert settings_of(release, "operator", tmp_path).engine_pull_secrets == ("pull", "other")


def test_the_small_trial_asks_for_as_much_as_it_says(render: Render) -> None:
    file = Path(__file__).parents[3] / "helm/fairlead/small.yaml"
    release = render(yaml.safe_load(file.read_text(encoding="utf-8")))
    requests = [
        (one["resources"]["requests"], workload["spec"].get("replicas", 1))
        for workload in release.every()
        if workload["kind"] in {"Deployment", "StatefulSet"}
        for one in workload["spec"]["template"]["spec"]["containers"]
    ]
    cpu = sum(int(found["cpu"].removesuffix("m")) * number for found, number in requests)
    memory = sum(int(found["memory"].removesuffix("Mi")) * number for found, number in requests)
    assert f"request {cpu}m of CPU and {memory} MiB" in file.read_text(encoding="utf-8")
