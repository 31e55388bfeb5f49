"""Answers access and token reviews: who the caller is, what it may do, and whose a token is.

Every account may do everything.
"""

from __future__ import annotations

from fairlead_sandbox.kubernetes_api.kinds.kinds import ResourceKind
from fairlead_sandbox.kubernetes_api.objects.errors import Invalid, required_value
from fairlead_sandbox.kubernetes_api.objects.objects import Object
from fairlead_sandbox.kubernetes_api.serving.accounts import Account, Accounts

REASON = "every sandbox account is allowed everything"


def answer_review(kind: ResourceKind, review: Object, caller: Account, accounts: Accounts) -> Object:
    """Return the review with its status filled in. Raises Invalid when it asks nothing."""
    spec = review.get("spec", {})
    match kind.kind:
        case "SelfSubjectAccessReview":
            _require_question(kind, spec)
            status: Object = {"allowed": True, "reason": REASON}
        case "SubjectAccessReview":
            _require_question(kind, spec)
            known = spec.get("user") in {account.username for account in accounts.all()}
            status = {"allowed": known, "reason": REASON if known else f"no account has the username {spec.get('user')!r}"}
        case "SelfSubjectRulesReview":
            status = {
                "resourceRules": [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}],
                "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}],
                "incomplete": False,
            }
        case "SelfSubjectReview":
            status = {"userInfo": caller.as_user()}
        case _:
            account = accounts.authenticate(spec.get("token", ""))
            status = {"authenticated": False, "error": "the token belongs to no account"}
            if account is not None:
                status = {"authenticated": True, "user": account.as_user()}
                if audiences := spec.get("audiences"):
                    status["audiences"] = audiences
    return {**review, "status": status}


def _require_question(kind: ResourceKind, spec: Object) -> None:
    asked = [name for name in ("resourceAttributes", "nonResourceAttributes") if spec.get(name) is not None]
    if len(asked) != 1:
        cause = required_value("spec.resourceAttributes", "exactly one of nonResourceAttributes or resourceAttributes must be specified")
        raise Invalid(kind=kind.kind, group=kind.group, name="", causes=[cause])
