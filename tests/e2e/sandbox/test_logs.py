"""The logs that a sandbox's processes write."""

import re

from fairlead_testing.running.sandbox import RunningSandbox


def secrets_of(sandbox: RunningSandbox) -> set[str]:
    """Return the sandbox's tokens, and the tokens in its kubeconfig."""
    files = (sandbox.state.secrets, sandbox.kubeconfig)
    return {text for file in files for text in re.findall(r"[\w-]{40,}", file.read_text(encoding="utf-8"))}


def test_no_process_writes_a_secret_to_its_log(sandbox: RunningSandbox) -> None:
    secrets = secrets_of(sandbox)
    assert len(secrets) >= 3, "operator, router, admin"
    logs = sorted(sandbox.state.logs.glob("*.log"))
    assert len(logs) >= 6
    for log in logs:
        written = log.read_text(errors="replace")
        assert not [secret for secret in secrets if secret in written], log.name
