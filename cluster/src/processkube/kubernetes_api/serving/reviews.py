"""Responds to access reviews and token reviews: who the caller is, what an account may do, and whose token it is."""

from __future__ import annotations

from collections.abc import Callable, Collection

from processkube.kubernetes_api.kinds.kinds import ResourceKind
from processkube.kubernetes_api.objects.errors import Invalid, required_value
from processkube.kubernetes_api.objects.objects import Object
from processkube.kubernetes_api.serving.accounts import Account, Accounts
from processkube.kubernetes_api.serving.rbac import Rbac, Wish
from processkube.kubernetes_api.serving.service_accounts import API_AUDIENCE, Authenticated

Authenticate = Callable[[str, Collection[str]], Authenticated | None]

_EVERY_PATH: Object = {"verbs": ["*"], "nonResourceURLs": ["*"]}
REASON = "every account of processkube's own is allowed everything"


def answer_review(
    kind: ResourceKind, review: Object, caller: Account, accounts: Accounts, authenticate: Authenticate, rbac: Rbac
) -> Object:
    """Return the review with its status filled in. Raises Invalid if the review contains no question."""
    spec = review.get("spec", {})
    match kind.kind:
        case "SelfSubjectAccessReview":
            _require_question(kind, spec)
            status: Object = _verdict(rbac, caller, spec)
        case "SubjectAccessReview":
            _require_question(kind, spec)
            asked = _account_named(str(spec.get("user", "")), tuple(spec.get("groups") or ()), accounts)
            status = _verdict(rbac, asked, spec)
        case "SelfSubjectRulesReview":
            everything = {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}
            rules = list(rbac.rules(caller, spec.get("namespace", ""))) if caller.obeys_rbac else [everything]
            beyond = [rule for rule in rules if rule.get("nonResourceURLs")] if caller.obeys_rbac else [_EVERY_PATH]
            status = {"resourceRules": [rule for rule in rules if rule.get("resources")], "nonResourceRules": beyond, "incomplete": False}
        case "SelfSubjectReview":
            status = {"userInfo": caller.as_user()}
        case _:
            found = authenticate(spec.get("token", ""), spec.get("audiences") or (API_AUDIENCE,))
            status = {"authenticated": False, "error": "the token belongs to no account, or is for other audiences"}
            if found is not None:
                status = {"authenticated": True, "user": found[0].as_user(), "audiences": found[1]}
    return {**review, "status": status}


def _account_named(username: str, groups: tuple[str, ...], accounts: Accounts) -> Account:
    """Return the account with this username: one of processkube's own accounts, or else an account that obeys roles."""
    found = next((account for account in accounts.all() if account.username == username), None)
    return found or Account(name="", username=username, groups=groups, token="", obeys_rbac=True)


def _verdict(rbac: Rbac, account: Account, spec: Object) -> Object:
    if not account.obeys_rbac:
        return {"allowed": True, "reason": REASON}
    asked = spec.get("resourceAttributes")
    if asked is None:
        asked = spec["nonResourceAttributes"]
        return {"allowed": rbac.allows_path(account, asked.get("path", ""), asked.get("verb", ""))}
    resource = "/".join(filter(None, (asked.get("resource", ""), asked.get("subresource", ""))))
    wish = Wish(
        verb=asked.get("verb", ""),
        group=asked.get("group", ""),
        resource=resource,
        namespace=asked.get("namespace", ""),
        name=asked.get("name", ""),
    )
    return {"allowed": rbac.allows(account, wish)}


def _require_question(kind: ResourceKind, spec: Object) -> None:
    asked = [name for name in ("resourceAttributes", "nonResourceAttributes") if spec.get(name) is not None]
    if len(asked) != 1:
        cause = required_value("spec.resourceAttributes", "exactly one of nonResourceAttributes or resourceAttributes must be specified")
        raise Invalid(kind=kind.kind, group=kind.group, name="", causes=[cause])
