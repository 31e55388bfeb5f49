"""A release as scripts/release makes it: built without a daemon, pushed to a registry, taken from there, started as the
chart's pods are.
"""

import asyncio
import json
import os
import secrets
import shutil
import signal
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from psycopg.conninfo import conninfo_to_dict

from fairlead_testing.running.helm import helm_library, stored_release
from fairlead_testing.running.operator_process import eventually, running_kubernetes_api
from fairlead_testing.running.postgres import fresh_database, plain, shared_server
from processkube.testing.clients import KubernetesClient
from processkube.testing.ports import free_port

ROOT = Path(__file__).parents[2]
SCRIPTS = ROOT / "scripts" / "release"
PROCESSES = ("operator", "api", "router", "engine")
PACKAGES = ("buildah", "skopeo", "umoci", "runc", "docker-registry", "socat")
"""Of Debian's; each has a program of its name."""
BUILD_SECONDS = 3600
START_SECONDS = 1200

pytestmark = pytest.mark.timeout(BUILD_SECONDS + 600)


@pytest.fixture(scope="session")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A registry on this machine, without TLS; skips where the lane was not asked for or a tool is missing."""
    if not os.environ.get("FAIRLEAD_TEST_IMAGES"):
        pytest.skip("builds images for minutes: make test-images")
    if missing := [name for name in PACKAGES if not shutil.which(name)]:
        pytest.skip(f"needs {' '.join(missing)} (Debian: apt-get install {' '.join(missing)})")
    folder = tmp_path_factory.mktemp("registry")
    address = f"127.0.0.1:{free_port()}"
    settings = {"version": 0.1, "storage": {"filesystem": {"rootdirectory": str(folder / "kept")}}, "http": {"addr": address}}
    (folder / "registry.yml").write_text(json.dumps(settings))
    with running(["docker-registry", "serve", str(folder / "registry.yml")], folder / "registry.log"):
        eventually(lambda: answers(f"http://{address}/v2/"), "the registry answers")
        yield f"{address}/ours"


@pytest.fixture(scope="session")
def release(registry: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a release that was pushed to the registry: one that the variable names, or a new one."""
    asked = {"REGISTRY": registry, "REGISTRY_TLS": "false"}
    if (made := Path(os.environ["FAIRLEAD_TEST_IMAGES"])).is_dir():
        subprocess.run([SCRIPTS / "push.sh", made, registry], env=os.environ | asked, check=True)
        return made
    out = tmp_path_factory.mktemp("release") / "out"
    done = subprocess.run(
        [SCRIPTS / "release.sh", out], env=os.environ | asked, capture_output=True, text=True, timeout=BUILD_SECONDS, check=False
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return out


def test_what_a_registry_has_is_what_was_built(release: Path, registry: str) -> None:
    for process in PROCESSES:
        command = ["skopeo", "inspect", "--tls-verify=false", f"docker://{registry}/fairlead/{process}:0.1.0"]
        found = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
        tagged = json.loads((release / "images" / process / "index.json").read_text())["manifests"]
        assert found["Digest"] in {one["digest"] for one in tagged}
        assert found["Labels"]["org.opencontainers.image.title"] == f"fairlead {process}"
        assert found["Labels"]["org.opencontainers.image.version"] == "0.1.0"
        assert f"{found['Digest'].replace(':', '-')}.sig" in found["RepoTags"]


def test_helm_installs_the_chart_from_the_registry(release: Path, registry: str, tmp_path: Path) -> None:
    library = helm_library()
    with running_kubernetes_api(tmp_path) as kubeconfig:
        action = library.Install(library.Configuration(namespace="default", kubeconfig=kubeconfig, plain_http=True))
        values = {"database": {"bundled": {"enabled": True}}, "crds": {"install": False}}
        where = f"oci://{registry}/charts/fairlead"
        asyncio.run(action.run("fairlead", where, values=values, version="0.1.0", wait=False))
        assert stored_release(KubernetesClient.of(kubeconfig), "default", "fairlead", 1) is not None
    assert release.exists()


@pytest.mark.parametrize("process", PROCESSES)
def test_an_image_has_no_rights_and_a_root_that_nobody_writes_to(process: str, release: Path) -> None:
    look = (
        "id -u; touch /x 2>&1; touch /opt/fairlead/x 2>&1; touch /tmp/x && echo written; grep CapEff /proc/self/status; fairlead --version"
    )
    done = subprocess.run(
        [SCRIPTS / "run.sh", release, process, "--", "sh", "-c", look], capture_output=True, text=True, timeout=START_SECONDS
    )
    user, root, package, tmp, rights, version = done.stdout.splitlines()
    assert (user, tmp, rights.split()[-1], version) == ("10001", "written", "0" * 16, "fairlead 0.1.0")
    assert root.endswith("Read-only file system")
    assert package.endswith("Read-only file system")


def test_the_four_processes_start_and_are_ready(release: Path, tmp_path: Path) -> None:
    """With a real database and the sandbox's Kubernetes API, each image becomes ready by its own probe."""
    token = secrets.token_hex(16)
    ports = {name: free_port() for name in ("api", "router", "router-admin", "operator", "engine")}
    with ExitStack() as ends:
        database = ends.enter_context(by_network(ends.enter_context(fresh_database(ends.enter_context(shared_server())))))
        kubeconfig = Path(ends.enter_context(running_kubernetes_api(tmp_path)))
        known = {"FAIRLEAD_API_URL": f"http://127.0.0.1:{ports['api']}", "FAIRLEAD_API_TOKEN": token}
        by = {"KUBECONFIG_TEXT": kubeconfig.read_text(), "KUBECONFIG": "/tmp/kubeconfig"}
        tokens = f"system-operator:operator:{token},system-router:router:{token}x"
        started = {
            "api": (
                {"FAIRLEAD_DATABASE_URL": database, "FAIRLEAD_BOOTSTRAP_TOKENS": tokens},
                f"exec fairlead api --host 127.0.0.1 --port {ports['api']}",
            ),
            "router": (
                known | {"FAIRLEAD_API_TOKEN": f"{token}x", "FAIRLEAD_SPOOL_DIR": "/tmp/spool", "FAIRLEAD_ROUTER_ID": "router-0"},
                f"exec fairlead router --port {ports['router']} --admin-port {ports['router-admin']}",
            ),
            "operator": (
                known | by | {"FAIRLEAD_OPERATOR_HEALTH_PORT": str(ports["operator"])},
                'printf %s "$KUBECONFIG_TEXT" > $KUBECONFIG && exec fairlead operator',
            ),
            "engine": ({}, f"exec fairlead-engine --model tiny --port {ports['engine']}"),
        }
        for process, (variables, command) in started.items():
            told = [f"{name}={value}" for name, value in variables.items()]
            ends.enter_context(
                running([str(SCRIPTS / "run.sh"), str(release), process, *told, "--", "sh", "-c", command], tmp_path / process)
            )
        for port, path in (("api", "readyz"), ("router-admin", "readyz"), ("operator", "readyz"), ("engine", "health")):
            eventually(lambda at=f"http://127.0.0.1:{ports[port]}/{path}": answers(at), f"{port} is ready", START_SECONDS)  # type: ignore[misc]


@contextmanager
def running(command: list[str], log: Path) -> Iterator[None]:
    """A program until the block ends; its output is printed for a test that fails."""
    with log.with_suffix(".log").open("wb") as output, subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT) as process:
        try:
            yield
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(timeout=START_SECONDS)
            print(log.with_suffix(".log").read_text(errors="replace")[-4000:])


@contextmanager
def by_network(url: str) -> Iterator[str]:
    """The same database at a port of this machine: a container does not see the server's socket."""
    place = conninfo_to_dict(plain(url))
    port = free_port()
    sockets = f"UNIX-CONNECT:{place['host']}/.s.PGSQL.{place.get('port', 5432)}"
    with subprocess.Popen(["socat", f"TCP-LISTEN:{port},bind=127.0.0.1,fork,reuseaddr", sockets]) as forwarder:
        yield f"postgresql+psycopg://{place['user']}@127.0.0.1:{port}/{place['dbname']}"
        forwarder.terminate()


def answers(url: str) -> bool:
    """Whether it answers 200."""
    try:
        with urllib.request.urlopen(url, timeout=10) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False
