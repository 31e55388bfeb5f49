"""Writes JSON documents as YAML in the style in which people write it, and finds the line of a field in such text.
Pure.
"""

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
    """PyYAML's dumper without anchors, and stricter about which texts it quotes."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _text(dumper: _Dumper, value: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=None if value.isprintable() else '"')


_Dumper.add_representer(str, _text)
# PyYAML writes `y` and `n` without quotes; Kubernetes' YAML reader takes them for booleans.
_Dumper.add_implicit_resolver("tag:yaml.org,2002:bool", re.compile("^[yYnN]$"), list("yYnN"))


def yaml_text(document: Any) -> str:
    """Return block-style YAML. Keys are in the order in which people write a spec, because stored documents have lost
    their order.

    Unprintable characters are escaped, including characters that change the text direction, which PyYAML does not
    escape.
    """
    text = yaml.dump(_ordered(document), Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=float("inf"))
    return "".join(char if char.isprintable() or char == "\n" else f"\\U{ord(char):08x}" for char in text)


_STEP = re.compile(r"[^.\[\]]+|\[\d+\]")


def line_of(text: str, path: str) -> int:
    """Return the line, from 1, of the field at a path such as `roles[0].maxReplicas`, or of the nearest object around
    it if the text has no such field. The text must be YAML.
    """
    node, line = yaml.compose(text, Loader=yaml.SafeLoader), 1
    for step in _STEP.findall(path):
        found = _below(node, step)
        if found is None:
            break
        node, line = found[1], found[0].start_mark.line + 1
    return line


def _below(node: yaml.Node | None, step: str) -> tuple[yaml.Node, yaml.Node] | None:
    """Return the node at which the field or list item `step` begins, and the node of its value; None if `node` has no
    such field or item.
    """
    if isinstance(node, yaml.MappingNode):
        return next(((key, value) for key, value in node.value if key.value == step), None)
    if isinstance(node, yaml.SequenceNode) and step.startswith("["):
        place = int(step[1:-1])
        return (node.value[place], node.value[place]) if place < len(node.value) else None
    return None


def _ordered(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _ordered(item) for key, item in sorted(value.items(), key=lambda item: _place(item[0]))}
    return [_ordered(item) for item in value] if isinstance(value, list) else value


def _place(key: object) -> tuple[int, str]:
    name = str(key)
    return (_FIRST.index(name) if name in _FIRST else len(_FIRST)), name
