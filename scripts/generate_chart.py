"""Writes the parts of the chart that are copied from other places: the CRDs from `crds/`, the numbers from which the
chart computes the routers' memory limit, and in values.schema.json the variables of each process's `settings` and the
required values. With `--check` it writes nothing, and prints the files that are out of date.
"""

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from fairlead_host.settings import HostSettings
from fairlead_operator.settings import OperatorSettings
from fairlead_process.environment import Variable, variables
from fairlead_process.kinds import Choice, Number, Switch, Whole
from fairlead_process.logs import LogSettings
from fairlead_process.starting import FaultSettings
from fairlead_router import limits
from fairlead_router.serving.body_memory import BYTES_EACH, SHARE_OF_MEMORY
from fairlead_router.settings import RouterSettings, Sizes

ROOT = Path(__file__).resolve().parent.parent
CHART = ROOT / "helm" / "fairlead"

PROCESSES: dict[str, type[Any]] = {"router": RouterSettings, "api": HostSettings, "operator": OperatorSettings}

SET_BY_THE_CHART = {
    "router": {
        "FAIRLEAD_API_URL", "FAIRLEAD_API_TOKEN", "FAIRLEAD_ROUTER_ID", "FAIRLEAD_SPOOL_DIR", "FAIRLEAD_ROUTERS_DIR", "FAIRLEAD_SHUTDOWN_SECONDS",
        "FAIRLEAD_ROUTER_ASK_HOST", "FAIRLEAD_ROUTER_ASK_PORT",
        "FAIRLEAD_GATEWAY_KEYS_REQUIRED", "FAIRLEAD_GATEWAY_KEYS", "FAIRLEAD_GATEWAY_KEYS_FILE", "FAIRLEAD_PICKER_PORT",
        "FAIRLEAD_KV_EVENTS_PORT", "FAIRLEAD_PICKER_TLS_CERT_FILE", "FAIRLEAD_PICKER_TLS_KEY_FILE",
    },
    "api": {
        "FAIRLEAD_DATABASE_URL", "FAIRLEAD_BOOTSTRAP_TOKENS", "FAIRLEAD_MIGRATE", "FAIRLEAD_WEB", "FAIRLEAD_PUBLIC_URL",
        "FAIRLEAD_AUTH_MODE", "FAIRLEAD_OIDC_CLIENT_SECRET", "FAIRLEAD_CLUSTER_TOKENS_DIR", "KUBECONFIG",
        "FAIRLEAD_SCALER_PORT", "FAIRLEAD_EXTERNAL_METRICS_PORT", "FAIRLEAD_AUTOSCALERS_TLS_CERT_FILE", "FAIRLEAD_AUTOSCALERS_TLS_KEY_FILE",
    },
    "operator": {
        "FAIRLEAD_API_URL", "FAIRLEAD_API_TOKEN", "FAIRLEAD_OPERATOR_IDENTITY", "FAIRLEAD_OPERATOR_LEASE_NAMESPACE",
        "FAIRLEAD_OPERATOR_HEALTH_HOST", "FAIRLEAD_OPERATOR_HEALTH_PORT", "FAIRLEAD_WATCH_NAMESPACES", "FAIRLEAD_ENGINE_IMAGE",
        "FAIRLEAD_LEAVING_NODES", "FAIRLEAD_PICKER_SERVICE", "FAIRLEAD_PICKER_SERVICE_PORT", "KUBECONFIG",
    },
}  # fmt: skip
"""By process, the variables that the chart sets from other values, or that have no use in a pod."""

SIZES = {"FAIRLEAD_MAX_BODY_BYTES", "FAIRLEAD_MAX_UPLOAD_BYTES", "FAIRLEAD_KEPT_PROMPTS_BYTES"}
"""Settings that always count for the routers' memory. FAIRLEAD_BODY_MEMORY_BYTES counts only if it is set."""


def settings_schema(process: str) -> dict[str, Any]:
    """Return the JSON Schema of a process's `settings`: its additional variables and their values."""
    everywhere = {found.name for found, _ in variables(LogSettings)}
    found = [one for settings in (PROCESSES[process], FaultSettings) for one, _ in variables(settings)]
    properties = {one.name: _value_schema(one) for one in found if one.name not in everywhere | SET_BY_THE_CHART[process]}
    return {"type": "object", "additionalProperties": False, "properties": properties}


def _value_schema(found: Variable) -> dict[str, Any]:
    described: dict[str, Any] = {"description": found.meaning}
    match found.kind:
        case Switch():
            return described | {"enum": ["0", "1", 0, 1]}
        case Choice():
            return described | {"enum": list(found.kind.words)}
        case Whole():
            return described | {"type": "integer", "minimum": found.kind.least} | _most(found.kind.most)
        case Number():
            least = {"exclusiveMinimum" if found.kind.above else "minimum": found.kind.least}
            return described | {"type": "number"} | least | _most(found.kind.most)
    return described | {"type": "string", "minLength": 1}


def _most(most: float | None) -> dict[str, Any]:
    return {} if most is None else {"maximum": most}


def router_memory() -> str:
    """Return the numbers of `fairlead_router.limits.needed_memory`, for the template `fairlead.routerMemory`."""
    defaults = {one.name: default for one, default in variables(Sizes) if one.name in SIZES}
    numbers = {
        "process": limits.PROCESS_BYTES,
        "readingEach": limits.READING_EACH,
        "readingValuesEach": limits.READING_VALUES_EACH,
        "mostForValues": limits.MOST_FOR_VALUES,
        "bytesEach": BYTES_EACH,
        "shareOfMemory": SHARE_OF_MEMORY,
        "step": limits.MEMORY_STEP,
        "defaults": defaults,
    }
    return json.dumps(numbers, indent=2) + "\n"


NULLABLE = frozenset({"replicas"})
"""Values that may be null. Null then means the number that Kubernetes has, for instance because an autoscaler sets it.
"""
FREE = frozenset({"#/$defs/resources"})
"""Groups of Kubernetes' own fields, in which null removes a default of the chart."""


def require(schema: dict[str, Any], shared: dict[str, Any], defaults: Mapping[str, Any]) -> None:
    """Make the values that have a default required in a schema.

    Helm treats a null as a missing value. Without this, its message would at best say where a template failed.
    """
    inner = {name: schema["properties"][name] for name in defaults}
    groups = {name for name, one in inner.items() if isinstance(defaults[name], dict) and "properties" in _resolved(one, shared)}
    groups -= {name for name, one in inner.items() if one.get("$ref") in FREE}
    single = {name for name, value in defaults.items() if value and not isinstance(value, dict | list) and name not in NULLABLE}
    schema.pop("required", None)
    if wanted := sorted(single | {name for name in groups if defaults[name]}):
        schema["required"] = wanted
    for name in sorted(groups):
        require(_resolved(inner[name], shared), shared, defaults[name])


def _resolved(schema: dict[str, Any], shared: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = shared[schema["$ref"].removeprefix("#/$defs/")] if "$ref" in schema else schema
    return found


def rendered() -> dict[Path, str]:
    """Return the content of every generated file, by its path."""
    files = {CHART / "files" / "crds" / path.name: path.read_text(encoding="utf-8") for path in sorted((ROOT / "crds").glob("*.yaml"))}
    schema = CHART / "values.schema.json"
    document = json.loads(schema.read_text(encoding="utf-8"))
    for process in PROCESSES:
        document["$defs"][f"{process}Settings"] = settings_schema(process)
    require(document, document["$defs"], yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8")))
    files[CHART / "files" / "router-memory.json"] = router_memory()
    return {**files, schema: json.dumps(document, indent=2, ensure_ascii=False) + "\n"}


def main() -> int:
    """Write the files, or with `--check` compare them; return 1 if a check finds a difference."""
    wanted = rendered()
    gone = set((CHART / "files" / "crds").glob("*")) - set(wanted)
    stale = [path for path, content in wanted.items() if not path.exists() or path.read_text(encoding="utf-8") != content]
    if "--check" in sys.argv[1:]:
        for path in [*stale, *gone]:
            print(f"{path.relative_to(ROOT)} is out of date; run make generate")
        return int(bool(stale or gone))
    for path in stale:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(wanted[path], encoding="utf-8")
    for path in gone:
        path.unlink()
    return 0


if __name__ == "__main__":
    sys.exit(main())
