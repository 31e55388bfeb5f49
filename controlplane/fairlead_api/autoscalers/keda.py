"""KEDA's external scaler protocol (`externalscaler.proto`): decodes requests and encodes responses.

The fields and field numbers are taken from KEDA's file. KEDA uses `metricValueFloat` only if it is above zero, and
otherwise the integer in `metricValue`. Therefore the headroom, which can be negative, is sent in whole percentage
points.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError

from fairlead_api.autoscalers.figures import HEADROOM, WANTED, Sample
from fairlead_process.grpc_server.grpc_stream import INVALID_ARGUMENT, NOT_FOUND

SERVICE = "/externalscaler.ExternalScaler/"

METRICS = {"wanted-instances": WANTED, "slo-headroom": HEADROOM}
"""Accepted values of a trigger's `metric`. KEDA puts its own prefix before the name."""
DEFAULT_METRIC = "wanted-instances"

POOL, ROLE, METRIC = "pool", "role", "metric"
_OF_KEDA = frozenset({"scalerAddress", "enableTLS", "unsafeSsl", "caCert", "tlsClientCert", "tlsClientKey"})


class Refused(Exception):
    """A call of KEDA is refused, with a gRPC status and one line of text."""

    def __init__(self, status: int, message: str) -> None:
        self.status = status
        super().__init__(message)


class Trigger(NamedTuple):
    """The series that a ScaledObject's trigger names; an empty `role` means the pool's only role."""

    namespace: str
    pool: str
    role: str
    metric: str


@dataclass(frozen=True, slots=True)
class Asked:
    """A request of KEDA: the trigger and, for calls that request values, the name of the metric."""

    trigger: Trigger
    metric_name: str = ""


def read_asked(method: str, payload: bytes) -> Asked:
    """Decode the request message of a call of `method`. Raises Refused."""
    made = _CLASSES["GetMetricsRequest" if method == "GetMetrics" else "ScaledObjectRef"]()
    try:
        made.ParseFromString(payload)
    except DecodeError:
        raise Refused(INVALID_ARGUMENT, f"not a message of {method}") from None
    if method == "GetMetrics":
        return Asked(_trigger(made.scaledObjectRef), made.metricName)
    return Asked(_trigger(made))


def _trigger(ref: Any) -> Trigger:
    given = {entry.key: entry.value for entry in ref.scalerMetadata}
    unknown = sorted(set(given) - {POOL, ROLE, METRIC} - _OF_KEDA)
    if unknown:
        raise Refused(INVALID_ARGUMENT, f"{unknown[0]} is not known in a trigger's metadata; write pool, role or metric")
    if not given.get(POOL) or "/" in given[POOL]:
        raise Refused(INVALID_ARGUMENT, "pool: write the name of a pool in the ScaledObject's namespace")
    metric = given.get(METRIC, DEFAULT_METRIC)
    if metric not in METRICS:
        raise Refused(INVALID_ARGUMENT, f"metric: {metric!r} is none of {', '.join(METRICS)}")
    return Trigger(ref.namespace, given[POOL], given.get(ROLE, ""), metric)


def answer(method: str, asked: Asked, samples: Sequence[Sample]) -> bytes:
    """Encode the response to a call, from the samples of the trigger's namespace. Raises Refused."""
    match method:
        case "GetMetricSpec":
            _found(asked.trigger, samples, asked.trigger.metric)
            return _made(
                "GetMetricSpecResponse", metricSpecs=[{"metricName": asked.trigger.metric, "targetSize": 1, "targetSizeFloat": 1.0}]
            )
        case "GetMetrics":
            if asked.metric_name != asked.trigger.metric:
                raise Refused(NOT_FOUND, f"this trigger has no metric {asked.metric_name!r}; its metric is {asked.trigger.metric}")
            return _made("GetMetricsResponse", metricValues=[_value(asked.trigger, _found(asked.trigger, samples, asked.trigger.metric))])
        case _:
            return active(asked, samples)


def active(asked: Asked, samples: Sequence[Sample]) -> bytes:
    """Encode the response that says whether Fairlead wants any instance of the trigger's pool and role. Raises
    Refused.
    """
    return _made("IsActiveResponse", result=_found(asked.trigger, samples, DEFAULT_METRIC).value > 0)


def _value(trigger: Trigger, sample: Sample) -> Mapping[str, Any]:
    value = sample.value * (100 if sample.metric == HEADROOM else 1)
    return {"metricName": trigger.metric, "metricValue": round(value), "metricValueFloat": max(0.0, value)}


def _found(trigger: Trigger, samples: Sequence[Sample], metric: str) -> Sample:
    """Return the sample of `metric` for the trigger's pool and role. Raises Refused."""
    of_pool = [one for one in samples if one.pool == trigger.pool]
    roles = sorted({one.role for one in of_pool if one.role})
    if not roles:
        raise Refused(NOT_FOUND, f"there is no pool {trigger.pool!r} in the namespace {trigger.namespace!r}")
    if trigger.role not in ("", *roles):
        raise Refused(NOT_FOUND, f"role: the pool {trigger.pool!r} has no role {trigger.role!r}; it has {', '.join(roles)}")
    if METRICS[metric] == WANTED and not trigger.role and len(roles) > 1:
        raise Refused(INVALID_ARGUMENT, f"role: name one of {', '.join(roles)}: the pool {trigger.pool!r} has several")
    wanted = (trigger.role or roles[0]) if METRICS[metric] == WANTED else ""
    found = next((one for one in of_pool if one.metric == METRICS[metric] and one.role == wanted), None)
    if found is None:
        raise Refused(NOT_FOUND, f"no request of the pool {trigger.pool!r} was judged in the last five minutes: its headroom is unknown")
    return found


_FIELD: Any = descriptor_pb2.FieldDescriptorProto
_TEXT, _INT, _FLOAT, _BOOL = _FIELD.TYPE_STRING, _FIELD.TYPE_INT64, _FIELD.TYPE_DOUBLE, _FIELD.TYPE_BOOL
_PACKAGE = "fairlead.externalscaler"
_SCHEMA: dict[str, tuple[tuple[str, int, int | str], ...]] = {
    # name: fields (name, number, type or message; "*message" = repeated)
    "MetadataEntry": (("key", 1, _TEXT), ("value", 2, _TEXT)),
    "ScaledObjectRef": (("name", 1, _TEXT), ("namespace", 2, _TEXT), ("scalerMetadata", 3, "*MetadataEntry")),
    "IsActiveResponse": (("result", 1, _BOOL),),
    "MetricSpec": (("metricName", 1, _TEXT), ("targetSize", 2, _INT), ("targetSizeFloat", 3, _FLOAT)),
    "GetMetricSpecResponse": (("metricSpecs", 1, "*MetricSpec"),),
    "GetMetricsRequest": (("scaledObjectRef", 1, "ScaledObjectRef"), ("metricName", 2, _TEXT)),
    "MetricValue": (("metricName", 1, _TEXT), ("metricValue", 2, _INT), ("metricValueFloat", 3, _FLOAT)),
    "GetMetricsResponse": (("metricValues", 1, "*MetricValue"),),
}
"""The fields of each message. A map field is encoded as a list of entries."""


def _classes() -> dict[str, Any]:
    file = descriptor_pb2.FileDescriptorProto(name="fairlead/externalscaler.proto", package=_PACKAGE, syntax="proto3")
    for name, fields in _SCHEMA.items():
        message = file.message_type.add(name=name)
        for field, number, kind in fields:
            made: Any = message.field.add(name=field, number=number, label=_FIELD.LABEL_OPTIONAL)
            if isinstance(kind, int):
                made.type = kind
                continue
            made.label = _FIELD.LABEL_REPEATED if kind.startswith("*") else _FIELD.LABEL_OPTIONAL
            made.type, made.type_name = _FIELD.TYPE_MESSAGE, f".{_PACKAGE}.{kind.removeprefix('*')}"
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{_PACKAGE}.{name}")) for name in _SCHEMA}


_CLASSES = _classes()


def _made(name: str, **fields: Any) -> bytes:
    encoded: bytes = _CLASSES[name](**fields).SerializeToString()
    return encoded
