"""The CustomResourceDefinitions of InferencePool and InferencePoolRole, generated from the typed specs of the core.

Pure; `scripts/generate_crds.py` writes the file.
"""

from typing import Any

from fairlead import pool_roles
from fairlead.conditions.facts import ConditionType
from fairlead.definitions import column, count, definition, text
from fairlead.pool_roles import PoolRoleSpec
from fairlead.pools import KIND, MAX_NAME, MAX_NAME_OF_GROUPS, PLURAL, PoolSpec
from fairlead.schemas.openapi import structural_schema

_READY = '.status.conditions[?(@.type=="Ready")]'


def custom_resource_definition() -> dict[str, Any]:
    """Return the whole CustomResourceDefinition of InferencePool, ready to be applied."""
    return definition(
        kind=KIND,
        plural=PLURAL,
        short_name="fpool",
        description="A pool of LLM inference instances that serve one model, routed by cache affinity within the SLO.",
        spec=structural_schema(PoolSpec, "The desired state of the pool."),
        status=_status(),
        rules={
            f"size(self.metadata.name) <= {MAX_NAME}": (
                f"metadata.name must be at most {MAX_NAME} characters, because pod names and labels are built from it"
            ),
            "self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')": (
                "metadata.name must start with a letter and hold only a-z, 0-9 and -, because a Service is named like it"
            ),
            f"size(self.metadata.name) <= {MAX_NAME_OF_GROUPS} || self.spec.roles.all(role, !has(role.nodes) || role.nodes == 1)": (
                f"metadata.name must be at most {MAX_NAME_OF_GROUPS} characters where roles[].nodes is above 1, because labels of "
                "the pods of a group are built from it"
            ),
        },
        columns=(
            column("Ready", "string", f"{_READY}.status", "Whether all desired instances serve."),
            column("Desired", "integer", ".status.desired", "Desired instances of all roles."),
            column("Serving", "integer", ".status.serving", "Instances that serve, of all roles."),
            column("Policy", "string", ".status.specInForce.spec.routing.policy", "Routing policy in force."),
            column("SLO", "string", ".status.slo.ttft", "Target in force for the time to first token."),
            column("Present", "integer", ".status.replicas", "Instances that exist and do not drain.", wide=True),
            column("Attainment", "number", ".status.slo.attainment", "Share of requests within the SLO, last 5 minutes.", wide=True),
            column("Model", "string", ".spec.model", "Model that is served.", wide=True),
            column("Reason", "string", f"{_READY}.reason", "Why the pool is ready or not.", wide=True),
        ),
    )


def _status() -> dict[str, Any]:
    return {
        "conditions": _conditions_schema(),
        "desired": count("Desired instances of all roles, within the bounds in force."),
        "replicas": count("Instances that exist and do not drain."),
        "serving": count("Instances that serve."),
        "selector": text("Label selector of the pool's pods, for autoscalers."),
        "lastOrdinal": count("Number of instances created so far; the next instance's name follows from it."),
        "roles": {
            "type": "array",
            "description": "Instances per role.",
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["name"],
            "items": {
                "type": "object",
                "required": ["name"],
                "properties": {
                    "name": text("Role."),
                    "desired": count("Desired instances."),
                    "ready": count("Instances that serve."),
                    "updated": count("Instances with the present template, not counting those that drain."),
                    "starting": count("Instances that are not serving yet."),
                    "draining": count("Instances being emptied."),
                    "lost": count("Instances that served and cannot be reached."),
                    "asleep": count("Instances that sleep until they are needed."),
                    "lastScale": {
                        "type": "object",
                        "description": "The last change of the desired number of instances.",
                        "properties": {
                            "at": text("When.", format="date-time"),
                            "from": count("Desired instances before the change."),
                            "to": count("Desired instances after the change."),
                            "reason": text("The person or program that changed the number."),
                        },
                    },
                },
            },
        },
        "ring": {
            "type": "object",
            "description": "The hash ring by which routers route.",
            "properties": {
                "version": count("Version of the newest routing table."),
                "anchors": count("Points on each ring."),
            },
        },
        "slo": {
            "type": "object",
            "description": "The targets in force, and the shares (0 to 1) of requests within them, last 5 minutes.",
            "properties": {
                "ttft": text("Target for the time to first token; a schedule may set another than spec.slo."),
                "tpot": text("Target for the time per output token after the first."),
                "percentile": {"type": "number", "description": "Share of requests, in percent, that must meet the targets."},
                "attainment": {"type": "number", "description": "Finished requests within both targets."},
                "ttftAttainment": {"type": "number", "description": "First tokens within the TTFT target."},
                "tpotAttainment": {"type": "number", "description": "Finished requests within the TPOT target."},
                "tasks": {
                    "type": "array",
                    "description": "Whole tasks with a target that were over in the last hour, by priority class.",
                    "x-kubernetes-list-type": "map",
                    "x-kubernetes-list-map-keys": ["name"],
                    "items": {
                        "type": "object",
                        "required": ["name"],
                        "properties": {
                            "name": text("Priority class of the tasks."),
                            "attainment": {"type": "number", "description": "Share (0 to 1) of tasks within their target."},
                            "tasks": count("Tasks whose last turn was answered."),
                            "brokenOff": count("Tasks whose last turn was refused or failed."),
                        },
                    },
                },
            },
        },
        "schedules": {
            "type": "array",
            "description": "The schedules, and which of them have a window open.",
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["name"],
            "items": {
                "type": "object",
                "required": ["name"],
                "properties": {
                    "name": text("Name of the schedule."),
                    "opened": text("Start of the window that is open.", format="date-time"),
                    "closes": text("End of the window that is open.", format="date-time"),
                    "next": text("Next start of a window.", format="date-time"),
                },
            },
        },
        "currentRevision": text("ControllerRevision that all instances had last, as a StatefulSet reports it."),
        "updateRevision": text("ControllerRevision of the spec in force."),
        "rollout": {
            "type": "object",
            "description": "The rollout that is not finished; left out when every instance is up to date.",
            "properties": {
                "key": text("Changes with the revision and with spec.rollout; then the rollout is judged again."),
                "beganAt": text("When the rollout began.", format="date-time"),
                "attainmentBefore": {"type": "number", "description": "SLO attainment (0 to 1) when the rollout began."},
                "updatedByRole": {
                    "type": "object",
                    "description": "Largest number of updated instances of each role that served at the same time.",
                    "additionalProperties": {"type": "integer"},
                },
                "updatedAt": text("Time at which a number in updatedByRole last grew.", format="date-time"),
                "worseSince": text("Since when the pool has been worse than before the rollout.", format="date-time"),
                "measured": text("The values that are worse than before the rollout."),
                "regressed": {"type": "boolean", "description": "Whether the rollout was stopped because of the values in measured."},
                "step": count("Step of the canary, counted from 0."),
                "stepSince": text("Since when all instances of the step have served.", format="date-time"),
                "rejected": {"type": "boolean", "description": "Whether the judge of the canary stopped the rollout."},
            },
        },
        "scaling": {
            "type": "object",
            "description": "The memory of scaling between two rounds, and its newest decisions.",
            "properties": {
                "memory": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
                "decisions": {
                    "type": "array",
                    "description": "The newest decisions of each controller and role within a day: the recommendation, its reason and its outcome.",
                    "items": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
                },
            },
        },
        "specInForce": {
            "type": "object",
            "description": "The last spec that was accepted; it stays in force while a newer one is refused.",
            "properties": {
                "generation": count("Its generation."),
                "spec": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
            },
        },
    }


def _conditions_schema() -> dict[str, Any]:
    return {
        "type": "array",
        "description": f"Conditions: {', '.join(kind.value for kind in ConditionType)}.",
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["type"],
        "items": {
            "type": "object",
            "required": ["type", "status", "reason", "message", "lastTransitionTime"],
            "properties": {
                "type": text("Kind of condition."),
                "status": text("True, False or Unknown.", enum=["True", "False", "Unknown"]),
                "reason": text("Named reason.", pattern="^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$"),
                "message": text("One line for a person."),
                "observedGeneration": count("Generation the condition is about."),
                "lastTransitionTime": text("When the status changed last.", format="date-time"),
            },
        },
    }


def role_definition() -> dict[str, Any]:
    """Return the whole CustomResourceDefinition of InferencePoolRole, ready to be applied."""
    return definition(
        kind=pool_roles.KIND,
        plural=pool_roles.PLURAL,
        short_name="fprole",
        description="One role of an InferencePool, as something that can be scaled. The operator makes it.",
        spec=structural_schema(PoolRoleSpec, "Desired number of instances."),
        status={
            "replicas": count("Instances that exist and do not drain."),
            "serving": count("Instances that serve."),
            "desired": count("Desired instances: replicas within the bounds in force."),
            "message": text("The source of the requested number, and the effect of the role's bounds on it."),
            "selector": text("Label selector of the role's pods, for autoscalers."),
        },
        rules={
            "self.metadata.name == self.spec.pool + '-' + self.spec.role": (
                "metadata.name must be <pool>-<role>; the operator makes this object, do not make it yourself"
            )
        },
        columns=(
            column("Pool", "string", ".spec.pool", "The InferencePool."),
            column("Role", "string", ".spec.role", "Role of the pool."),
            column("Desired", "integer", ".status.desired", "Desired instances, within the bounds in force."),
            column("Serving", "integer", ".status.serving", "Instances that serve."),
            column("Replicas", "integer", ".spec.replicas", "Instances this object asks for; `kubectl scale` and an HPA write it."),
            column("Pinned", "integer", ".spec.pinned", "The number that the pool declares; empty if this object may be scaled."),
            column("Present", "integer", ".status.replicas", "Instances that exist and do not drain.", wide=True),
            column("Message", "string", ".status.message", "The source of the requested number.", wide=True),
        ),
    )
