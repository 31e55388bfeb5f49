"""`spec.gateway`: how gateways may send requests to the pool through an InferencePool of the Gateway API Inference
Extension.

That project (GAIE) has a kind of the same name in another API group. Gateways read from that kind which pods they may
send to, and which endpoint picker chooses a pod for each request; in Fairlead, the routers are the endpoint picker.
"""

# ruff: noqa: RUF009 (the calls return dataclasses.field(...), which ruff knows only by name)

from dataclasses import dataclass
from enum import StrEnum

from fairlead.instances import Role
from fairlead.schemas.shapes import Rule, text

GATEWAY_GROUP = "inference.networking.k8s.io"
GATEWAY_VERSION = "v1"
GATEWAY_PLURAL = "inferencepools"
GATEWAY_KIND = "InferencePool"


class FailureMode(StrEnum):
    """A gateway's treatment of a request while no router picks an endpoint for the request; the names are GAIE's."""

    FAIL_CLOSE = "FailClose"
    FAIL_OPEN = "FailOpen"


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewaySpec:
    """Lets gateways send requests to this pool, and sets a gateway's behaviour when no router responds."""

    failure_mode: FailureMode = text(
        (
            "What a gateway does with a request while no router answers it. FailClose: the gateway refuses the request; "
            "FailOpen: the gateway sends the request to an instance of its own choice, bypassing all limits and priorities."
        ),
        FailureMode.FAIL_CLOSE.value,
        enum=tuple(mode.value for mode in FailureMode),
        convert=FailureMode,
    )


ONLY_ROUTERS_DIVIDE = Rule(
    cel="!has(self.gateway) || self.gateway.failureMode != 'FailOpen' || self.roles.all(role, role.name == 'both')",
    holds=lambda spec: (
        spec.gateway is None or spec.gateway.failure_mode is not FailureMode.FAIL_OPEN or all(role.name is Role.BOTH for role in spec.roles)
    ),
    field="gateway.failureMode",
    message="gateway.failureMode FailOpen needs the role both: only routers know which instances decode; write FailClose",
)
"""The rule that the failure mode FailOpen needs the role `both`."""
