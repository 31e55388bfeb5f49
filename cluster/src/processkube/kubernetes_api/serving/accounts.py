"""The accounts that may use the server, with their tokens and their kubeconfigs."""

from __future__ import annotations

import base64
import csv
import hmac
import io
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml

from processkube.kubernetes_api.objects.objects import Object
from processkube.private_files import write_private

ADMIN = "admin"
_WANTED: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    (ADMIN, "system:admin", ("system:masters", "system:authenticated")),
    ("kubelet", "system:node:sandbox", ("system:nodes", "system:authenticated")),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """One account that may use the server.

    processkube's own accounts may do everything, so that its processes need no roles. If `obeys_rbac`, the account may
    do only what roles grant; this is the case for service accounts.
    """

    name: str
    username: str
    groups: tuple[str, ...]
    token: str
    obeys_rbac: bool = False

    def as_user(self) -> Object:
        return {"username": self.username, "uid": self.name, "groups": list(self.groups)}


class Accounts:
    """The server's own accounts. Their tokens are compared in constant time."""

    def __init__(self, accounts: Sequence[Account]) -> None:
        self._accounts = tuple(accounts)

    def all(self) -> tuple[Account, ...]:
        return self._accounts

    def named(self, name: str) -> Account:
        return next(account for account in self._accounts if account.name == name)

    def authenticate(self, token: str) -> Account | None:
        """Return the account with this token; None if no account has it.

        The token is compared with the tokens of all accounts, so that the duration of the call reveals nothing about
        any token.
        """
        given = token.encode()
        found = None
        for account in self._accounts:
            if hmac.compare_digest(account.token.encode(), given):
                found = account
        return found


def ensure_accounts(token_file: Path, service_accounts: Sequence[str] = ()) -> Accounts:
    """Return the accounts in the token file. Missing accounts are added to the file: the server's own accounts, and an
    account for each `namespace/name` in `service_accounts`.

    A line of the file is `token,user,name,"groups"`, as in kube-apiserver's token file.
    """
    known: dict[str, Account] = {}
    if token_file.exists():
        for row in csv.reader(io.StringIO(token_file.read_text(encoding="utf-8"))):
            token, username, name, joined = row
            known[name] = Account(name=name, username=username, groups=tuple(joined.split(",")), token=token)
    missing = [one for one in (*_WANTED, *map(_for_service_account, service_accounts)) if one[0] not in known]
    for name, username, groups in missing:
        known[name] = Account(name=name, username=username, groups=groups, token=secrets.token_urlsafe(32))
    if missing:
        text = io.StringIO()
        csv.writer(text).writerows([one.token, one.username, one.name, ",".join(one.groups)] for one in known.values())
        write_private(token_file, text.getvalue().encode())
    return Accounts(tuple(known.values()))


def _for_service_account(place: str) -> tuple[str, str, tuple[str, ...]]:
    namespace, _, name = place.partition("/")
    groups = ("system:serviceaccounts", f"system:serviceaccounts:{namespace}", "system:authenticated")
    return f"{namespace}-{name}", f"system:serviceaccount:{namespace}:{name}", groups


def kubeconfig(url: str, authority: bytes, account: Account) -> bytes:
    """Return a kubeconfig for one account. It contains the certificate authority and the token."""
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "processkube",
        "preferences": {},
        "clusters": [
            {
                "name": "processkube",
                "cluster": {"server": url, "certificate-authority-data": base64.b64encode(authority).decode()},
            }
        ],
        "users": [{"name": account.name, "user": {"token": account.token}}],
        "contexts": [
            {
                "name": "processkube",
                "context": {"cluster": "processkube", "user": account.name, "namespace": "default"},
            }
        ],
    }
    return yaml.safe_dump(config, sort_keys=False).encode()
