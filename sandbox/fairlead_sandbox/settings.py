"""The sandbox's settings, and the variables of the user's environment that each of its processes gets."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from fairlead_process.environment import NOT_SETTINGS, PREFIX, names, read, unread, variable
from fairlead_process.kinds import Number, Text
from fairlead_process.logs import LogSettings
from fairlead_process.starting import FaultSettings
from fairlead_sandbox.processes import ProcessSpec
from processkube.kubernetes_api.collecting.grace_periods import GRACE_SECONDS

OF_COMMANDS = frozenset({"FAIRLEAD_DEBUG", "FAIRLEAD_GATEWAY_KEY", "FAIRLEAD_STATE_DIR", "FAIRLEAD_TOKEN", "FAIRLEAD_URL"})
"""Variables that the subcommands of `fairlead` read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxSettings:
    """Settings of the sandbox. If `database_url` is empty, the sandbox runs its own Postgres; if `kubeconfig` is empty,
    it runs its own Kubernetes API.
    """

    database_url: str = field(
        default="",
        repr=False,
        metadata=variable(
            "FAIRLEAD_DATABASE_URL",
            Text("postgresql://user:password@host:5432/database", "URL"),
            "the URL of your own Postgres",
            "its contents outlive the sandbox",
            default_shown="one of its own",
        ),
    )
    kubeconfig: str = field(
        default="",
        metadata=variable(
            "FAIRLEAD_KUBECONFIG",
            Text("/home/me/cluster/kubeconfig", "path"),
            "a cluster's kubeconfig, whose Kubernetes API is used; the sandbox joins it as a node",
            "the sandbox acts there as that user, who must be an administrator with a token; its contents outlive the sandbox",
            default_shown="an API of its own",
        ),
    )
    node_grace_seconds: float = field(
        default=GRACE_SECONDS,
        metadata=variable(
            "FAIRLEAD_NODE_GRACE_SECONDS",
            Number("seconds", least=5, most=3600),
            "a node whose kubelet is silent for this long is lost, and its pods are no longer ready",
            "shorter = lost pods are replaced sooner, but on a busy machine a live node may count as lost; "
            "kube-controller-manager has 40 or 50",
        ),
    )


def handed_on(environment: Mapping[str, str], wanted: frozenset[str]) -> dict[str, str]:
    """Return the environment for one process, without the Fairlead variables that the process does not read.

    `wanted`: the names of the Fairlead variables that the process reads.
    """
    return {
        name: value for name, value in environment.items() if not name.startswith(PREFIX) or name.startswith(NOT_SETTINGS) or name in wanted
    }


def kubernetes_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the log settings and FAIRLEAD_DEBUG under the names that the sandbox's Kubernetes API and kubelet use.

    Raises InvalidInput.
    """
    logs, faults = read(LogSettings, environment), read(FaultSettings, environment)
    named = {"PROCESSKUBE_LOG_LEVEL": logs.level, "PROCESSKUBE_LOG_FORMAT": logs.format}
    return {**named, "PROCESSKUBE_DEBUG": "1"} if faults.debug else named


def strange(environment: Mapping[str, str], specs: Iterable[ProcessSpec]) -> list[str]:
    """Return one line for each Fairlead variable that is set but that nothing in the sandbox reads."""
    known = names(SandboxSettings) | OF_COMMANDS | frozenset(name for spec in specs for name in spec.reads)
    found = unread(environment, known)
    return [f"{name} is set, but nothing reads it" + (f": is {similar} meant?" if similar else "") for name, similar in found.items()]
