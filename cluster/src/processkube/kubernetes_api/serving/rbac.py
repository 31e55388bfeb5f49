"""RBAC: what an account may do, by the Roles and ClusterRoles that are bound to it.

The source is https://kubernetes.io/docs/reference/access-authn-authz/rbac/. One rule of Kubernetes is missing: here an
account can grant rights that it does not have itself, without the verbs `escalate` and `bind`. The rules of an
aggregated ClusterRole are collected at each check; in a cluster, a controller writes them into the ClusterRole.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from processkube.kubernetes_api.objects.errors import Forbidden
from processkube.kubernetes_api.objects.objects import Object
from processkube.kubernetes_api.objects.selectors import selector_of_object
from processkube.kubernetes_api.serving.accounts import Account
from processkube.kubernetes_api.storing.store import Store

_GROUP = "rbac.authorization.k8s.io"
_DESCRIPTIONS = ("/api", "/apis", "/healthz", "/livez", "/openapi", "/readyz", "/version")
"""Paths that everybody may read, with all paths below them, because of a cluster's role `system:discovery`."""
_OWN_REVIEWS = {
    ("authorization.k8s.io", "selfsubjectaccessreviews"),
    ("authorization.k8s.io", "selfsubjectrulesreviews"),
    ("authentication.k8s.io", "selfsubjectreviews"),
}
"""Resources, as (group, plural), that everybody may create, because of a cluster's role `system:basic-user`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """A right that a request needs: a verb on a resource. `resource` includes the subresource, as in `pods/status`."""

    verb: str
    group: str
    resource: str
    namespace: str = ""
    name: str = ""


class Rbac:
    """Checks the rights of accounts. It reads the roles and bindings in the store at every check and caches nothing."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def require(self, account: Account, wish: Wish) -> None:
        """Raise Forbidden, with the real server's message, if the account may not take the action."""
        if self.allows(account, wish):
            return
        plural, _, _ = wish.resource.partition("/")
        qualified = f"{plural}.{wish.group}" if wish.group else plural
        named = f'{qualified} "{wish.name}"' if wish.name else qualified
        where = f'in the namespace "{wish.namespace}"' if wish.namespace else "at the cluster scope"
        details: Object = {"name": wish.name, "group": wish.group, "kind": plural}
        raise Forbidden(
            f'{named} is forbidden: User "{account.username}" cannot {wish.verb} resource "{wish.resource}" in API group "{wish.group}" {where}',
            details={key: value for key, value in details.items() if value},
        )

    def require_description(self, account: Account, path: str, method: str) -> None:
        """Raise Forbidden if the account may not use this method on a path that is not a resource."""
        if not self.allows_path(account, path, method.lower()):
            raise Forbidden(f'forbidden: User "{account.username}" cannot {method.lower()} path "{path}"', details={})

    def allows(self, account: Account, wish: Wish) -> bool:
        """Return whether the account may take the action."""
        if not account.obeys_rbac or (wish.verb == "create" and (wish.group, wish.resource) in _OWN_REVIEWS):
            return True
        return any(_covers(rule, wish) for rule in self.rules(account, wish.namespace))

    def allows_path(self, account: Account, path: str, verb: str) -> bool:
        """Return whether the account may use this verb on a path that is not a resource."""
        if not account.obeys_rbac:
            return True
        described = any(path == one or path.startswith(f"{one}/") for one in _DESCRIPTIONS)
        if described and verb in {"get", "head"}:
            return True
        return any(_has(rule, "verbs", verb) and _covers_path(rule, path) for rule in self.rules(account, ""))

    def rules(self, account: Account, namespace: str) -> Iterator[Object]:
        """Yield all rules that apply to the account in a namespace. For the namespace "", yield only the rules that
        apply to the whole cluster.
        """
        for binding in self._bindings("clusterrolebindings", ""):
            if _is_subject(binding, account):
                yield from self._rules_of(binding, "")
        if namespace:
            for binding in self._bindings("rolebindings", namespace):
                if _is_subject(binding, account):
                    yield from self._rules_of(binding, namespace)

    def _bindings(self, resource: str, namespace: str) -> list[Object]:
        return [stored.object for stored in self._store.list(f"{resource}.{_GROUP}", namespace)]

    def _rules_of(self, binding: Object, namespace: str) -> list[Object]:
        reference = binding["roleRef"]
        resource, within = ("roles", namespace) if reference["kind"] == "Role" else ("clusterroles", "")
        stored = self._store.get(f"{resource}.{_GROUP}", within, reference["name"])
        return [] if stored is None else self._rules_in(stored.object, frozenset())

    def _rules_in(self, role: Object, within: frozenset[str]) -> list[Object]:
        """Return the rules of a role. An aggregated role has the rules of the roles that it selects. The roles named in
        `within` are skipped, because they are being collected already.
        """
        aggregation = role.get("aggregationRule")
        if aggregation is None:
            return role.get("rules") or []
        around = within | {role["metadata"]["name"]}
        selectors = [selector_of_object(one) for one in aggregation.get("clusterRoleSelectors") or ()]
        others = [stored.object for stored in self._store.list(f"clusterroles.{_GROUP}") if stored.name not in around]
        chosen = [one for one in others if any(selector.matches(one["metadata"].get("labels")) for selector in selectors)]
        return [rule for one in chosen for rule in self._rules_in(one, around)]


def _is_subject(binding: Object, account: Account) -> bool:
    namespace = binding["metadata"].get("namespace", "")
    for subject in binding.get("subjects") or []:
        match subject["kind"]:
            case "ServiceAccount":
                if account.username == f"system:serviceaccount:{subject.get('namespace') or namespace}:{subject['name']}":
                    return True
            case "User":
                if account.username == subject["name"]:
                    return True
            case "Group":
                if subject["name"] in account.groups:
                    return True
    return False


def _covers(rule: Object, wish: Wish) -> bool:
    return (
        _has(rule, "verbs", wish.verb)
        and _has(rule, "apiGroups", wish.group)
        and (_has(rule, "resources", wish.resource) or _covers_subresource(rule, wish.resource))
        and (not rule.get("resourceNames") or wish.name in rule["resourceNames"])
    )


def _covers_path(rule: Object, path: str) -> bool:
    """Return whether a rule covers this path. A `*` at the end of the rule's path stands for any text."""
    listed = rule.get("nonResourceURLs") or []
    return any(path == one or (one.endswith("*") and path.startswith(one.rstrip("*"))) for one in listed)


def _has(rule: Object, member: str, wanted: str) -> bool:
    listed = rule.get(member) or []
    return wanted in listed or "*" in listed


def _covers_subresource(rule: Object, resource: str) -> bool:
    _, slash, subresource = resource.partition("/")
    return bool(slash) and f"*/{subresource}" in (rule.get("resources") or [])
