"""Every value has an effect and a description, and no other value is accepted."""

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from fairlead_testing.running.chart import Render
from fairlead_testing.running.helm import CHART, Document, HelmRefused, Release
from fairlead_testing.worlds.chart_values import BUNDLED, EVERYTHING, OIDC, merged

SCHEMA: Document = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))
DEFAULTS: Document = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))

WITHOUT_CRDS = {"crds": {"install": False}}
"""Values that leave out the CRDs, which are large and depend on few values."""

OTHER: dict[str, Any] = {
    "fullnameOverride": "another",
    "imageRegistry": "registry.example.com",
    "imagePullSecrets": ["registry"],
    "podSecurityContext": {"runAsUser": 4711},
    "containerSecurityContext": {"privileged": False},
    "tokens.existingSecret": "our-tokens",
    "gatewayKeys.existingSecret": "our-keys",
    "gatewayKeys.key": "clients",
    "autoscalers.tls.existingSecret": "another",
    "autoscalers.tls.caBundle": "-----BEGIN CERTIFICATE-----\nother",
    "database.existingSecret.name": "another",
    "database.existingSecret.key": "url",
    "database.bundled.existingSecret": "our-postgres",
    "operator.watchNamespaces": ["rendering"],
    "operator.engineImage": "engine:1",
    "operator.leavingNodes": "cordons",
    "api.environment": {"FORWARDED_ALLOW_IPS": "10.0.0.1"},
    "operator.environment": {"NO_PROXY": ".svc"},
    "router.environment": {"SSL_CERT_FILE": "/etc/ours.pem"},
    "api.oidcClientSecret.name": "another",
    "api.clusterTokensSecret": "cluster-tokens",
    "api.oidcClientSecret.key": "secret",
    "api.publicUrl": "https://elsewhere.example.com",
    "monitoring.serviceMonitors.interval": "5s",
    "monitoring.podMonitor.interval": "5s",
    "monitoring.podMonitor.port": "metrics",
    "monitoring.podMonitor.path": "/prometheus",
    "router.ingress.host": "elsewhere.example.com",
    "router.httpRoute.hostnames": ["elsewhere.example.com"],
}
ENDINGS: dict[str, Any] = {
    "image.registry": "mirror.example.com",
    "image.repository": "other/image",
    "image.tag": "9.9.9",
    "image.digest": "sha256:" + "0" * 64,
    "priorityClassName": "important",
    "spreadOver": ["topology.kubernetes.io/zone"],
    "className": "other",
    "tlsSecret": "other",
    "size": "7Gi",
    "tolerations": [{"key": "gpu", "operator": "Exists"}],
    "parentRefs": [{"name": "other"}],
    "routerClients": [],
    "pickerClients": [],
    "kvEventsEngines": [],
    "scalerClients": [],
    "apiClients": [],
    "monitoring": [],
    "affinity": {"podAntiAffinity": {}},
    "requests": {"cpu": "7"},
    "limits": {"memory": "7Gi"},
    "claims": [{"name": "gpu"}],
}
"""Other values for values of these names, wherever they are."""


def leaves(schema: Document, path: str = "") -> Iterator[tuple[str, Document]]:
    """Yield the path and schema of each value that is no group of others."""
    if "$ref" in schema:
        schema = SCHEMA["$defs"][schema["$ref"].rpartition("/")[2]]
    if schema.get("properties"):
        for name, inner in schema["properties"].items():
            yield from leaves(inner, f"{path}.{name}".lstrip("."))
    else:
        yield path, schema


LEAVES = {path: schema for path, schema in leaves(SCHEMA) if path not in {"global", "enabled"} and ".settings." not in path}
"""`global` is Helm's own, `enabled` what it asks of a dependency; test_processes.py has the settings."""


def at(path: str, values: Document) -> Any:
    for name in path.split("."):
        values = values.get(name, {}) if isinstance(values, dict) else {}
    return values


def nested(path: str, value: Any) -> Document:
    for name in reversed(path.split(".")):
        value = {name: value}
    assert isinstance(value, dict)
    return value


def another(path: str, schema: Document, present: Any) -> Any:
    """Return a value that differs from the present one."""
    ending = next((ending for ending in ENDINGS if path == ending or path.endswith(f".{ending}")), None)
    if path in OTHER:
        return OTHER[path]
    if ending is not None:
        return ENDINGS[ending]
    if schema.get("type") == "boolean":
        return not present
    if "enum" in schema:
        return next(word for word in schema["enum"] if word != present)
    if schema.get("type") in {"integer", "number"}:
        return present + 1
    if schema.get("type") == "object":
        return {**(present if isinstance(present, dict) else {}), "example.com/new": "value"}
    raise AssertionError(f"say another value of {path} in OTHER or ENDINGS")


def without_secrets(release: Release) -> list[Document]:
    """Return all objects and the notes, without the contents of secrets, which are new each time."""
    kept = [{**one, "data": sorted(one["data"])} if one["kind"] == "Secret" else one for one in release.every()]
    return [*kept, {"notes": release.notes}]


BASES: dict[str, list[Document]] = {}


@pytest.mark.parametrize("path", LEAVES)
def test_every_value_changes_what_is_rendered(path: str, render: Render) -> None:
    special = {"crds.": "crds", "database.bundled": "bundled", "api.oidc": "oidc"}
    name = next((base for beginning, base in special.items() if path.startswith(beginning)), "everything")
    base = {
        "crds": EVERYTHING,
        "bundled": merged(BUNDLED, WITHOUT_CRDS),
        "oidc": merged(BUNDLED, OIDC, WITHOUT_CRDS),
        "everything": merged(EVERYTHING, WITHOUT_CRDS),
    }[name]
    if path == "database.bundled.enabled":
        changed = merged(base, {"database": {"bundled": {"enabled": False}, "existingSecret": {"name": "pg"}}})
    else:
        change = nested(path, another(path, LEAVES[path], at(path, merged(DEFAULTS, base))))
        changed = merged(base, change)
    if name not in BASES:
        BASES[name] = without_secrets(render(base))
    assert without_secrets(render(changed)) != BASES[name]


def test_a_null_takes_a_value_away_or_is_refused_by_its_name(render: Render) -> None:
    base = merged(BUNDLED, WITHOUT_CRDS)
    empty = [path for path in LEAVES if not at(path, DEFAULTS) or isinstance(at(path, DEFAULTS), list)]
    taken = [path for path in empty if ".resources." not in path and not at(path, base)]
    taken += ["podSecurityContext", "containerSecurityContext", "router.resources", "router.settings", "api.resources", "api.replicas"]
    nulls = merged(*(nested(path, None) for path in taken))
    found = json.dumps([one for one in render(merged(base, nulls)).every() if one["kind"] != "Secret"])
    assert "nil>" not in found
    assert "no value" not in found
    for path in ("router.service.port", "operator.image", "log"):
        with pytest.raises(HelmRefused, match=rf"missing propert.*'{path.rpartition('.')[2]}'"):
            render(merged(base, nested(path, None)))


def strings(word: str, *, beside: str) -> Document:
    """Return values with one word in each place that takes a word, except in places whose path has the other word."""
    values: Document = {
        "api": {"publicUrl": f"https://{word}", "environment": {"EXAMPLE": word}},
        "operator": {"environment": {"EXAMPLE": word}},
        "router": {"environment": {"EXAMPLE": word}},
    }
    for path, schema in LEAVES.items():
        inner = next((schema[name] for name in ("items", "additionalProperties") if name in schema), schema)
        if inner.get("type") == "string" and re.search(inner.get("pattern", ""), word) and beside not in path.split("."):
            value = [word] if schema["type"] == "array" else {"example": word} if schema["type"] == "object" else word
            values = merged(values, nested(path, value))
    return values


def kinds_of_values(found: Any, word: str) -> Any:
    """Return the rendered document with the kind of each value in its place, and a marker for each key that is the
    word.
    """
    if isinstance(found, dict):
        return {"word" if key == word else key: kinds_of_values(value, word) for key, value in found.items()}
    return [kinds_of_values(one, word) for one in found] if isinstance(found, list) else type(found).__name__


@pytest.mark.parametrize("word", ["123", "true", "1e3"])
@pytest.mark.parametrize(
    ("base", "beside"), [(merged(EVERYTHING, OIDC, WITHOUT_CRDS), "bundled"), (merged(BUNDLED, WITHOUT_CRDS), "existingSecret")]
)
def test_a_string_stays_one_that_looks_like_a_number_or_a_boolean(base: Document, beside: str, word: str, render: Render) -> None:
    """Kubernetes allows such names. What the chart made of them was refused, after a part of the release was there."""
    usual = render(merged(base, strings("word", beside=beside))).every()
    assert kinds_of_values(render(merged(base, strings(word, beside=beside))).every(), word) == kinds_of_values(usual, "word")


def groups(schema: Document, path: str = "") -> Iterator[tuple[str, Document]]:
    """Yield the path and schema of each group of values."""
    if "$ref" in schema:
        schema = SCHEMA["$defs"][schema["$ref"].rpartition("/")[2]]
    if "properties" in schema:
        yield path, schema
        for name, inner in schema["properties"].items():
            yield from groups(inner, f"{path}.{name}".lstrip("."))


def test_what_the_schema_knows_stands_in_the_values_and_nothing_else() -> None:
    optional = {"global", "enabled", "claims"}
    for path, schema in groups(SCHEMA):
        assert schema.get("additionalProperties") is False, path
        if path.endswith(".settings"):
            continue
        shown = at(path, DEFAULTS) if path else DEFAULTS
        assert set(schema["properties"]) - optional - set(shown) <= {"limits", "requests"}, path
        assert set(shown) <= set(schema["properties"]), path


OF_KUBERNETES = {
    "runAsNonRoot", "runAsUser", "runAsGroup", "fsGroup", "seccompProfile",
    "allowPrivilegeEscalation", "readOnlyRootFilesystem", "capabilities", "requests", "limits",
}  # fmt: skip
"""Members of objects that Kubernetes documents."""


def test_every_value_is_explained_where_its_name_first_stands() -> None:
    explained: set[str] = set()
    lines = (CHART / "values.yaml").read_text(encoding="utf-8").splitlines()
    for before, line in zip(["", *lines], lines, strict=False):
        found = re.match(r" *([A-Za-z]+):( .*)?$", line)
        if not found:
            continue
        name, is_group = found[1], not (found[2] or "").strip()
        assert before.strip().startswith("#") or name in explained or is_group or name in OF_KUBERNETES, line
        explained.add(name)
