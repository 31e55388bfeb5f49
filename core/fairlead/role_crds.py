"""The CustomResourceDefinition of InferencePoolRole. Pure; `scripts/generate_crds.py` writes the file."""

from typing import Any

from fairlead.definitions import column, count, definition, text
from fairlead.pool_roles import KIND, PLURAL, PoolRoleSpec
from fairlead.schemas.openapi import structural_schema


def role_definition() -> dict[str, Any]:
    """The whole CRD object, ready to be applied."""
    return definition(
        kind=KIND,
        plural=PLURAL,
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
