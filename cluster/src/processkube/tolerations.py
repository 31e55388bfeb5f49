"""Decides whether a pod's toleration covers a node's taint. This module is pure. Tolerations and taints have the form
that they have in manifests.
"""

from collections.abc import Mapping
from typing import Any


def tolerates(toleration: Mapping[str, Any], taint: Mapping[str, Any]) -> bool:
    """Return whether the toleration covers the taint. A toleration without a key covers every key, and one without an
    effect covers every effect.
    """
    if toleration.get("effect") and toleration["effect"] != taint["effect"]:
        return False
    if toleration.get("key") and toleration["key"] != taint["key"]:
        return False
    exists = toleration.get("operator") == "Exists"
    return exists or (bool(toleration.get("key")) and toleration.get("value", "") == taint.get("value", ""))
