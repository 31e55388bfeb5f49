"""kubectl, unmodified, on machines that have it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from processkube.kubernetes_api.objects.objects import decode
from processkube.kubernetes_api.serving.server import RunningServer
from processkube.kubernetes_api.serving.yaml_bodies import read_yaml
from processkube.testing.waiting import PATIENCE_SECONDS

KUBECTL = shutil.which("kubectl")
pytestmark = pytest.mark.skipif(KUBECTL is None, reason="kubectl is not on PATH")
WIDGET = """
apiVersion: acme.dev/v1
kind: Widget
metadata: {name: a}
spec: {image: "x:1", replicas: 2}
"""
POD = """
apiVersion: v1
kind: Pod
metadata: {name: web, labels: {app: web}}
spec: {containers: [{name: c, image: "i:1"}]}
"""

Kubectl = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def kubectl(server: RunningServer, namespace: str, tmp_path_factory: pytest.TempPathFactory) -> Kubectl:
    """Return a function that runs kubectl in the test's namespace; its `text` goes to standard input."""
    home = tmp_path_factory.getbasetemp() / "kubectl-home"
    home.mkdir(exist_ok=True)
    environment = {"PATH": os.environ["PATH"], "HOME": str(home), "KUBECONFIG": str(server.kubeconfig)}

    def run(*arguments: str, text: str = "") -> subprocess.CompletedProcess[str]:
        command = [str(KUBECTL), "--namespace", namespace, *arguments]
        return subprocess.run(command, input=text, env=environment, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False)

    return run


def output(ended: subprocess.CompletedProcess[str]) -> str:
    assert ended.returncode == 0, ended.stderr
    return ended.stdout.strip()


SCALARS = (
    "y n Y N yes No ON off TRUE False yEs ~ null NULL 0 -0 00 7 +7 -7 017 -017 0o17 0O17 08 09 0x1f 0X1F -0x1F 0b101 0B1 -0b1 0x 0o8 0x_1 "
    "1_000 1__0 _1 1_ 1e3 1E3 1.5e3 -1e3 1e-7 1e21 1e400 1. .5 +.5 -.5 .5_0 .5_ .5e1 . .. -.nan 1.2.3 1:30 2026-01-01 "
    "2026-01-01T00:00:00Z 9223372036854775808 0xffffffffffffffff 0x11111111111111111 = 1Gi 100m"
)


def test_plain_scalars_of_yaml_are_what_kubectl_takes_them_for(kubectl: Kubectl) -> None:
    scalars = SCALARS.split()
    listed = "".join(f"- {scalar}\n" for scalar in scalars)
    text = f"apiVersion: acme.dev/v1\nkind: Widget\nmetadata: {{name: a}}\nspec:\n{listed}"
    theirs = decode(output(kubectl("patch", "--local", "-f", "-", "--type=merge", "-p", "{}", "-o", "json", text=text)).encode())
    assert dict(zip(scalars, read_yaml(text.encode())["spec"], strict=True)) == dict(zip(scalars, theirs["spec"], strict=True))


def test_apply_creates_then_changes_nothing_then_configures(kubectl: Kubectl) -> None:
    assert output(kubectl("apply", "-f", "-", text=WIDGET)) == "widget.acme.dev/a created"
    assert output(kubectl("apply", "-f", "-", text=WIDGET)) == "widget.acme.dev/a unchanged"
    changed = WIDGET.replace("replicas: 2", "replicas: 3")
    differs = kubectl("diff", "-f", "-", text=changed)
    assert differs.returncode == 1
    assert "+  replicas: 3" in differs.stdout
    assert output(kubectl("apply", "-f", "-", text=changed)) == "widget.acme.dev/a configured"
    assert output(kubectl("diff", "-f", "-", text=changed)) == ""


def test_apply_refuses_unknown_fields_and_broken_rules(kubectl: Kubectl) -> None:
    unknown = kubectl("apply", "-f", "-", text=WIDGET.replace("replicas", "replica"))
    assert unknown.returncode == 1
    assert 'strict decoding error: unknown field "spec.replica"' in unknown.stderr
    broken = kubectl("apply", "-f", "-", text=WIDGET.replace("replicas: 2", "replicas: 9"))
    assert "replicas must not exceed maxReplicas" in broken.stderr


def test_get_scale_wait_and_delete(kubectl: Kubectl) -> None:
    kubectl("apply", "-f", "-", text=WIDGET)
    header, row = output(kubectl("get", "wd", "-o", "wide")).splitlines()
    assert header.split() == ["NAME", "REPLICAS", "READY", "IMAGE", "AGE"]
    assert row.split()[:3] == ["a", "2", "x:1"]
    assert output(kubectl("scale", "widget/a", "--replicas=3")) == "widget.acme.dev/a scaled"
    beyond = kubectl("scale", "widget/a", "--replicas=9")
    assert (beyond.returncode, "replicas must not exceed maxReplicas" in beyond.stderr) == (1, True)
    assert output(kubectl("wait", "--for=jsonpath={.spec.replicas}=3", "widget/a", f"--timeout={PATIENCE_SECONDS:g}s")).endswith(
        "condition met"
    )
    assert output(kubectl("delete", "widget", "a")).startswith('widget.acme.dev "a" deleted')
    assert "No resources found" in kubectl("get", "widgets").stderr


def test_server_side_apply_meets_its_conflict(kubectl: Kubectl) -> None:
    output(kubectl("apply", "--server-side", "--field-manager=gitops", "-f", "-", text=WIDGET))
    changed = WIDGET.replace("replicas: 2", "replicas: 3")
    refused = kubectl("apply", "--server-side", "--field-manager=other", "-f", "-", text=changed)
    assert refused.returncode == 1
    assert 'conflict with "gitops": .spec.replicas' in refused.stderr
    output(kubectl("apply", "--server-side", "--field-manager=other", "--force-conflicts", "-f", "-", text=changed))
    assert output(kubectl("get", "widget", "a", "-o", "jsonpath={.spec.replicas}")) == "3"


def test_a_move_from_client_side_to_server_side_apply_meets_no_conflict(kubectl: Kubectl) -> None:
    output(kubectl("apply", "-f", "-", text=WIDGET))
    output(kubectl("apply", "--server-side", "-f", "-", text=WIDGET.replace("replicas: 2", "replicas: 3")))
    assert output(kubectl("get", "widget", "a", "-o", "jsonpath={.spec.replicas}")) == "3"
    output(kubectl("scale", "widget", "a", "--replicas=4"))
    refused = kubectl("apply", "--server-side", "--field-manager=gitops", "-f", "-", text=WIDGET)
    assert refused.returncode == 1
    assert "conflict with" in refused.stderr


def test_explain_reads_the_schema(kubectl: Kubectl) -> None:
    assert "What the widget should be." in output(kubectl("explain", "widget.spec"))
    assert "image\t<string> -required-" in output(kubectl("explain", "widgets.spec"))
    assert "Container's working directory" in output(kubectl("explain", "pod.spec.containers.workingDir"))


def test_logs_describe_label_and_drain_by_eviction(kubectl: Kubectl, namespace: str, log_folder: Path, api: httpx.Client) -> None:
    output(kubectl("apply", "-f", "-", text=POD))
    (log_folder / f"{namespace}_web.log").write_text("one\ntwo\n")
    assert output(kubectl("logs", "web", "--tail=1")) == "two"
    assert output(kubectl("label", "pod", "web", "tier=front")) == "pod/web labeled"
    described = output(kubectl("describe", "pod", "web"))
    assert "tier=front" in described
    assert "i:1" in described
    assert output(kubectl("set", "image", "pod/web", "c=i:2")) == "pod/web image updated"
    assert api.get(f"/api/v1/namespaces/{namespace}/pods/web").json()["spec"]["containers"][0]["image"] == "i:2"
    assert output(kubectl("get", "pods")).splitlines()[1].split()[:3] == ["web", "0/1", "Pending"]


DEPLOYMENT = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 1
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: c, image: "i:1"}]}
"""


def start_pods(kubectl: Kubectl, namespace: str, api: httpx.Client, count: int) -> None:
    """Report each pod of the Deployment as running, as a kubelet would, once there are this many."""
    kubectl("wait", "--for=create", "pod", "-l", "app=web", f"--timeout={PATIENCE_SECONDS:g}s")
    end = time.monotonic() + PATIENCE_SECONDS
    while len(pods := api.get(f"/api/v1/namespaces/{namespace}/pods").json()["items"]) < count:
        assert time.monotonic() < end, pods
    ready = json.dumps({"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}})
    for pod in pods:
        path = f"/api/v1/namespaces/{namespace}/pods/{pod['metadata']['name']}/status"
        patched = api.patch(path, content=ready, headers={"Content-Type": "application/merge-patch+json"})
        assert patched.status_code in (200, 404), patched.text  # a rollout may have removed the pod meanwhile


def test_a_rollout_is_waited_for_restarted_and_undone(kubectl: Kubectl, namespace: str, api: httpx.Client) -> None:
    patience = f"--timeout={PATIENCE_SECONDS:g}s"
    output(kubectl("apply", "-f", "-", text=DEPLOYMENT))
    start_pods(kubectl, namespace, api, 1)
    assert output(kubectl("rollout", "status", "deployment/web", patience)).endswith('deployment "web" successfully rolled out')
    assert output(kubectl("wait", "--for=condition=Available", "deployment/web", patience)).endswith("condition met")
    assert output(kubectl("rollout", "restart", "deployment/web")) == "deployment.apps/web restarted"
    waiting = kubectl("rollout", "status", "deployment/web", "--timeout=1s")
    assert (waiting.returncode, "1 old replicas are pending termination" in waiting.stdout) == (1, True)
    start_pods(kubectl, namespace, api, 2)
    assert output(kubectl("rollout", "status", "deployment/web", patience)).endswith('deployment "web" successfully rolled out')
    history = output(kubectl("rollout", "history", "deployment/web")).splitlines()
    assert [line.split()[0] for line in history[2:]] == ["1", "2"]
    assert output(kubectl("rollout", "undo", "deployment/web")) == "deployment.apps/web rolled back"


def test_commands_that_speak_protobuf_are_understood(kubectl: Kubectl, namespace: str, api: httpx.Client) -> None:
    assert output(kubectl("create", "configmap", "c", "--from-literal=k=v")) == "configmap/c created"
    assert output(kubectl("create", "secret", "generic", "s", "--from-literal=k=v")) == "secret/s created"
    assert api.get(f"/api/v1/namespaces/{namespace}/secrets/s").json()["data"] == {"k": "dg=="}
    assert output(kubectl("create", "namespace", f"{namespace}-x")) == f"namespace/{namespace}-x created"
    assert output(kubectl("delete", "namespace", f"{namespace}-x")).startswith(f'namespace "{namespace}-x" deleted')
    assert output(kubectl("auth", "can-i", "delete", "pods")) == "yes"
    assert "system:admin" in output(kubectl("auth", "whoami"))
    role = ("--verb=get,list", "--resource=pods,deployments.apps")
    assert output(kubectl("create", "role", "r", *role)) == "role.rbac.authorization.k8s.io/r created"
    granted = api.get(f"/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/roles/r").json()["rules"]
    assert granted == [
        {"verbs": ["get", "list"], "apiGroups": [""], "resources": ["pods"]},
        {"verbs": ["get", "list"], "apiGroups": ["apps"], "resources": ["deployments"]},
    ]
    subject = f"--serviceaccount={namespace}:robot"
    assert output(kubectl("create", "serviceaccount", "robot")) == "serviceaccount/robot created"
    assert output(kubectl("create", "rolebinding", "b", "--role=r", subject)) == "rolebinding.rbac.authorization.k8s.io/b created"
    assert output(kubectl("create", "clusterrole", namespace, "--verb=get", "--non-resource-url=/metrics")).endswith("created")
    assert output(kubectl("create", "clusterrolebinding", namespace, f"--clusterrole={namespace}", subject)).endswith("created")
    robot = f"--as=system:serviceaccount:{namespace}:robot"
    whole, rule = f"{namespace}-whole", f"--aggregation-rule=in={namespace}"
    assert output(kubectl("create", "clusterrole", whole, rule)).endswith("created")
    assert output(kubectl("create", "clusterrolebinding", whole, f"--clusterrole={whole}", subject)).endswith("created")
    assert output(kubectl("create", "clusterrole", f"{whole}-1", "--verb=get", "--resource=nodes")).endswith("created")
    assert kubectl("auth", "can-i", "get", "nodes", robot).stdout.strip() == "no"
    output(kubectl("label", "clusterrole", f"{whole}-1", f"in={namespace}"))
    assert output(kubectl("auth", "can-i", "get", "nodes", robot)) == "yes"
    assert output(kubectl("auth", "can-i", "list", "deployments.apps", robot)) == "yes"
    assert output(kubectl("auth", "can-i", "get", "/metrics", robot)) == "yes"
    assert output(kubectl("create", "token", "robot", "--duration=1h", "--audience=mine")).count(".") == 2
    refused = kubectl("create", "deployment", "d", "--image=i")
    assert "kubectl apply -f -" in refused.stderr
