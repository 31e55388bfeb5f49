"""Writes JSON documents as the YAML that a person would write. Pure."""

import re
from typing import Any

import yaml

_FIRST = (
    "name",
    "cron",
    "duration",
    "timeZone",
    "type",
    "model",
    "replicas",
    "roles",
    "minReplicas",
    "maxReplicas",
    "engine",
    "routing",
    "policy",
    "parameters",
    "slo",
    "earlyRejection",
    "mode",
    "priorityClasses",
    "drain",
)


class _Dumper(yaml.SafeDumper):
    """PyYAML's writer without anchors, stricter about what it quotes."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _text(dumper: _Dumper, value: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=None if value.isprintable() else '"')


_Dumper.add_representer(str, _text)
# PyYAML writes `y` and `n` without quotes; Kubernetes' YAML reader takes them for booleans.
_Dumper.add_implicit_resolver("tag:yaml.org,2002:bool", re.compile("^[yYnN]$"), list("yYnN"))


def yaml_text(document: Any) -> str:
    """Block-style YAML with keys in the order in which people write a spec, because storage keeps no order.

    Unprintable characters are escaped, including those that change the text direction, which PyYAML does not escape.
    """
    text = yaml.dump(_ordered(document), Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=float("inf"))
    return "".join(char if char.isprintable() or char == "\n" else f"\\U{ord(char):08x}" for char in text)


def _ordered(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _ordered(item) for key, item in sorted(value.items(), key=lambda item: _place(item[0]))}
    return [_ordered(item) for item in value] if isinstance(value, list) else value


def _place(key: object) -> tuple[int, str]:
    name = str(key)
    return (_FIRST.index(name) if name in _FIRST else len(_FIRST)), name
