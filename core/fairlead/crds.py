"""The CustomResourceDefinition of InferencePool, generated from the typed spec of the core.

Pure; `scripts/generate_crds.py` writes the file.
"""

from typing import Any

from fairlead.conditions.facts import ConditionType
from fairlead.pools import GROUP, KIND, MAX_NAME, PLURAL, VERSION, PoolSpec
from fairlead.schemas.openapi import structural_schema


def custom_resource_definition() -> dict[str, Any]:
    """The whole CRD object, ready to be applied."""
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{PLURAL}.{GROUP}", "labels": {"app.kubernetes.io/part-of": "fairlead"}},
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": {
                "kind": KIND,
                "listKind": f"{KIND}List",
                "plural": PLURAL,
                "singular": KIND.lower(),
                "shortNames": ["fpool"],
                "categories": ["fairlead"],
            },
            "versions": [_version()],
        },
    }


def _version() -> dict[str, Any]:
    return {
        "name": VERSION,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": _object_schema()},
        "subresources": {
            "status": {},
            "scale": {
                "specReplicasPath": ".spec.replicas",
                "statusReplicasPath": ".status.replicas",
                "labelSelectorPath": ".status.selector",
            },
        },
        "additionalPrinterColumns": [
            _column("Ready", "string", '.status.conditions[?(@.type=="Ready")].status', "Whether all wanted instances serve."),
            _column("Replicas", "integer", ".spec.replicas", "Instances wanted."),
            _column("Serving", "integer", ".status.serving", "Instances that serve."),
            _column("Policy", "string", ".spec.routing.policy", "Routing policy."),
            _column("SLO", "string", ".spec.slo.ttft", "Target for the time to first token."),
            _column("Age", "date", ".metadata.creationTimestamp", "Time since creation."),
        ],
    }


def _column(name: str, kind: str, path: str, description: str) -> dict[str, Any]:
    return {"name": name, "type": kind, "jsonPath": path, "description": description}


def _object_schema() -> dict[str, Any]:
    return {
        "type": "object",
        "description": "A pool of LLM inference instances that serve one model, routed by cache affinity within the SLO.",
        "required": ["spec"],
        "properties": {
            "apiVersion": {"type": "string", "description": "Version of this schema."},
            "kind": {"type": "string", "description": "InferencePool."},
            "metadata": {"type": "object"},
            "spec": structural_schema(PoolSpec, "What the pool should be."),
            "status": _status_schema(),
        },
        "x-kubernetes-validations": [
            {
                "rule": f"size(self.metadata.name) <= {MAX_NAME}",
                "message": f"metadata.name must be at most {MAX_NAME} characters, because pod names and labels are built from it",
            },
            {
                "rule": "self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')",
                "message": "metadata.name must start with a letter and hold only a-z, 0-9 and -, because a Service is named like it",
            },
        ],
    }


def _text(description: str, **more: Any) -> dict[str, Any]:
    return {"type": "string", "description": description, **more}


def _count(description: str) -> dict[str, Any]:
    return {"type": "integer", "description": description}


def _status_schema() -> dict[str, Any]:
    return {
        "type": "object",
        "description": "What the pool is; written by the operator.",
        "properties": {
            "observedGeneration": _count("Generation of the spec this status is about."),
            "conditions": _conditions_schema(),
            "replicas": _count("Instances that exist and do not drain."),
            "serving": _count("Instances that serve."),
            "selector": _text("Label selector of the pool's pods, for autoscalers."),
            "lastOrdinal": _count("Instances made so far; the next one's name follows from it."),
            "roles": {
                "type": "array",
                "description": "Instances per role.",
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["name"],
                "items": {
                    "type": "object",
                    "required": ["name"],
                    "properties": {
                        "name": _text("Role."),
                        "desired": _count("Instances wanted."),
                        "ready": _count("Instances that serve."),
                        "starting": _count("Instances on their way to serve."),
                        "draining": _count("Instances being emptied."),
                        "lost": _count("Instances that served and cannot be reached."),
                        "lastScale": {
                            "type": "object",
                            "description": "The last change of the number of instances wanted.",
                            "properties": {
                                "at": _text("When.", format="date-time"),
                                "from": _count("Instances wanted before."),
                                "to": _count("Instances wanted since."),
                                "reason": _text("Who or what changed it."),
                            },
                        },
                    },
                },
            },
            "ring": {
                "type": "object",
                "description": "The hash ring the routers route by.",
                "properties": {
                    "version": _count("Version of the newest routing table."),
                    "anchors": _count("Points on each ring."),
                },
            },
            "slo": {
                "type": "object",
                "description": "Shares (0 to 1) of requests within the SLO, last 5 minutes.",
                "properties": {
                    "attainment": {"type": "number", "description": "Finished requests within both targets."},
                    "ttftAttainment": {"type": "number", "description": "First tokens within the TTFT target."},
                    "tpotAttainment": {"type": "number", "description": "Finished requests within the TPOT target."},
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
                        "name": _text("Name of the schedule."),
                        "opened": _text("Start of the window that is open.", format="date-time"),
                        "closes": _text("End of the window that is open.", format="date-time"),
                        "next": _text("Next start of a window.", format="date-time"),
                    },
                },
            },
            "rollout": {
                "type": "object",
                "description": "The rollout that is not finished; left out when every instance is up to date.",
                "properties": {
                    "key": _text("Changes with the revision and with spec.rollout; then the rollout is judged anew."),
                    "beganAt": _text("When it began.", format="date-time"),
                    "attainmentBefore": {"type": "number", "description": "SLO attainment (0 to 1) when it began."},
                    "updated": _count("Most updated instances that served at once."),
                    "updatedAt": _text("When that number grew last.", format="date-time"),
                    "worseSince": _text("Since when something is worse than before.", format="date-time"),
                    "measured": _text("What is worse."),
                    "regressed": {"type": "boolean", "description": "Whether the rollout was stopped for that."},
                },
            },
            "scaling": {
                "type": "object",
                "description": "What scaling remembers between two rounds, and its newest decisions.",
                "properties": {
                    "memory": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
                    "decisions": {
                        "type": "array",
                        "description": "The newest of each controller and role within a day: what was recommended, why, and what became of it.",
                        "items": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
                    },
                },
            },
            "specInForce": {
                "type": "object",
                "description": "The last spec that was accepted; it stays in force while a newer one is refused.",
                "properties": {
                    "generation": _count("Its generation."),
                    "spec": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
                },
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
                "type": _text("Kind of condition."),
                "status": _text("True, False or Unknown.", enum=["True", "False", "Unknown"]),
                "reason": _text("Named reason.", pattern="^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$"),
                "message": _text("One line for a person."),
                "observedGeneration": _count("Generation the condition is about."),
                "lastTransitionTime": _text("When the status changed last.", format="date-time"),
            },
        },
    }
