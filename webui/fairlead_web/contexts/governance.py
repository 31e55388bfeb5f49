"""Contexts of audit, plans, settings, and of the pages that need no session: login, help, errors."""

from dataclasses import dataclass
from typing import ClassVar

from fairlead_client.resources.access import LoginLink, TokenItem
from fairlead_client.resources.audit import AuditEntry, AuditVerification
from fairlead_client.resources.pages import Page as Listing
from fairlead_client.resources.plans import Plan
from fairlead_client.resources.pools import PoolRevision
from fairlead_client.resources.problems import Problem
from fairlead_web.rendering import Context
from fairlead_web.shells import Preferences, Shell


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditPage(Context):
    template: ClassVar[str] = "pages/audit.html"
    shell: Shell
    listing: Listing[AuditEntry]
    verification: AuditVerification | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One field that changed, before and after as text; `step` is the difference of two numbers, with its sign."""

    path: str
    before: str
    after: str
    step: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditEntryPage(Context):
    template: ClassVar[str] = "pages/audit_entry.html"
    shell: Shell
    entry: AuditEntry
    changes: list[Change]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanPage(Context):
    """`confirm` and `reason` are as last sent; `problem` is why applying was refused. `meanwhile` are revisions made since the plan, with what
    each changed; `wanted` is the number of replicas to plan again, None if it is no longer a change."""

    template: ClassVar[str] = "pages/plan.html"
    shell: Shell
    plan: Plan
    pool_name: str
    changes: list[Change]
    problem: Problem | None
    confirm: str
    reason: str
    can_apply: bool
    can_undo: bool
    meanwhile: list[tuple[PoolRevision, list[Change]]]
    wanted: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingsPage(Context):
    """`created` carries the one answer in which a new token's secret is visible, `login_link` a fresh one-time link with its full address."""

    template: ClassVar[str] = "pages/settings.html"
    shell: Shell
    tokens: Listing[TokenItem] | None
    created: TokenItem | None
    login_link: LoginLink | None
    login_address: str
    problem: Problem | None


@dataclass(frozen=True, slots=True, kw_only=True)
class HelpPage(Context):
    template: ClassVar[str] = "pages/help.html"
    shell: Shell
    glossary: tuple[tuple[str, str], ...]
    shortcuts: tuple[tuple[str, str], ...]
    patterns: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LoginPage(Context):
    """`token` is a one-time link's, held in the form until the person presses the button; `problem` says why the last try failed."""

    template: ClassVar[str] = "pages/login.html"
    title: str
    preferences: Preferences
    token: str
    next: str
    problem: Problem | None
    ended: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorContent:
    """`remedy` is the sentence that says what to do now; `retry_path` where trying again is safe, if it is; `search` a list to look in."""

    problem: Problem
    remedy: str
    command: str
    retry_path: str
    search: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorPage(Context):
    """Within the site's navigation."""

    template: ClassVar[str] = "pages/error.html"
    shell: Shell
    content: ErrorContent


@dataclass(frozen=True, slots=True, kw_only=True)
class BareErrorPage(Context):
    """For somebody who is not signed in."""

    template: ClassVar[str] = "pages/error_bare.html"
    title: str
    preferences: Preferences
    content: ErrorContent
    home: str
