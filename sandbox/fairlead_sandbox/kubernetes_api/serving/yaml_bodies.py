"""Reads YAML as the real server does: what is JSON as JSON, and plain scalars by go-yaml's rules."""

from __future__ import annotations

import re
from typing import Any

import orjson
import yaml

from fairlead_sandbox.kubernetes_api.objects.objects import decode, with_64_bit_integers

_TAG = "tag:yaml.org,2002:"
_NUMBERS = {
    f"{_TAG}float": r"[-+]?(\.[0-9_]+|[0-9][0-9_]*(\.[0-9_]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)",
    f"{_TAG}int": r"[-+]?(0b[01_]+|0[0-7_]+|0|[1-9][0-9_]*|0x[0-9a-fA-F_]+)",
}
_FIRST_SIGNS = "-+.0123456789"


class _Loader(yaml.SafeLoader):
    """Knows `1e-05` as a number, and dates and `1:30` as text, unlike PyYAML's own."""


_Loader.yaml_implicit_resolvers = {
    sign: [(tag, pattern) for tag, pattern in known if tag not in {*_NUMBERS, f"{_TAG}timestamp"}]
    for sign, known in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
for _tag in (f"{_TAG}int", f"{_TAG}float"):
    _Loader.add_implicit_resolver(_tag, re.compile(f"^({_NUMBERS[_tag]})$"), list(_FIRST_SIGNS))


def read_yaml(body: bytes) -> Any:
    """The JSON value of a body. Raises ValueError for what is none."""
    try:
        return decode(body)
    except ValueError:
        pass  # it is YAML proper
    try:
        loaded = with_64_bit_integers(yaml.load(body, Loader=_Loader))  # noqa: S506 - a kind of SafeLoader
        return orjson.loads(orjson.dumps(loaded, option=orjson.OPT_NON_STR_KEYS))
    except (yaml.YAMLError, TypeError) as error:
        raise ValueError(str(error)) from error
