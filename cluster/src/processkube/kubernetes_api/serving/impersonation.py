"""Acting as another account, with the headers that `kubectl --as` sends. The headers are interpreted as by the real
server's filter WithImpersonation.
"""

from __future__ import annotations

from aiohttp import web

from processkube.kubernetes_api.objects.errors import BadRequest
from processkube.kubernetes_api.serving.accounts import Account, Accounts
from processkube.kubernetes_api.serving.rbac import Rbac, Wish
from processkube.kubernetes_api.serving.service_accounts import service_account

_SERVICE_ACCOUNT, _AUTHENTICATED, _MASTERS = "system:serviceaccount:", "system:authenticated", "system:masters"


def acting_account(request: web.Request, account: Account, accounts: Accounts, rbac: Rbac) -> Account:
    """Return the account for which a request is carried out. This is the caller or the account that the caller
    impersonates. Raises Forbidden if the caller may not impersonate the requested user or groups.
    """
    username, groups = request.headers.get("Impersonate-User", ""), tuple(request.headers.getall("Impersonate-Group", []))
    if not username:
        if groups:
            raise BadRequest(f"requested {list(groups)} without impersonating a user")
        return account
    namespace, colon, name = username.removeprefix(_SERVICE_ACCOUNT).partition(":")
    if username.startswith(_SERVICE_ACCOUNT) and colon:
        rbac.require(account, Wish(verb="impersonate", group="", resource="serviceaccounts", namespace=namespace, name=name))
        implied = service_account(namespace, name).groups
    else:
        rbac.require(account, Wish(verb="impersonate", group="", resource="users", name=username))
        implied = (_AUTHENTICATED,)
    for group in groups:
        rbac.require(account, Wish(verb="impersonate", group="", resource="groups", name=group))
    acting = groups or implied
    if _AUTHENTICATED not in acting:
        acting = (*acting, _AUTHENTICATED)
    own = next((one for one in accounts.all() if one.username == username), None)
    obeys = _MASTERS not in acting if own is None else own.obeys_rbac
    return Account(name="", username=username, groups=acting, token="", obeys_rbac=obeys)
