"""How long a web session is valid: no longer than the token or login by which it was opened."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from fairlead_api.access.access import Access
from fairlead_api.access.credentials import Held
from fairlead_api.infra.callers import Bootstrap, Caller
from fairlead_api.infra.errors import Denied, NotAuthenticated
from fairlead_client.resources.access import AccessRole, Identity

NOW = datetime(2026, 11, 23, 12, tzinfo=UTC)
ROOT = Bootstrap(role=AccessRole.ADMIN, name="root", key=b"root")


def session_of(subject: str, source: str, role: AccessRole = AccessRole.ADMIN) -> Identity:
    return Identity(subject=subject, role=role, source=source, expires_at=NOW + timedelta(hours=24))


class OneSession:
    """A store with one web session."""

    def __init__(self, identity: Identity, opened_by: bytes | None) -> None:
        self.held = Held(identity=identity, opened_by=opened_by)

    async def identify(self, _key: bytes, _kind: str, _now: datetime) -> Held:
        return self.held

    async def record(self, draft: Any, now: datetime) -> None:
        pass


def access(identity: Identity, *bootstrap: Bootstrap, open_to_all: bool = False, opened_by: bytes | None = None) -> Access:
    return Access(OneSession(identity, opened_by), bootstrap, open_to_all=open_to_all)  # type: ignore[arg-type] # only what is used here


async def test_a_session_of_an_open_api_is_not_good_at_one_that_asks_who_comes() -> None:
    anybody = session_of("anonymous", "none")
    assert (await access(anybody, open_to_all=True).identify("fls_1", NOW))[0] == anybody
    with pytest.raises(NotAuthenticated):
        await access(anybody, ROOT).identify("fls_1", NOW)


@pytest.mark.parametrize(
    "stands",
    [(), (Bootstrap(role=AccessRole.ADMIN, name="other", key=b"other"),), (Bootstrap(role=AccessRole.VIEWER, name="root", key=b"less"),)],
    ids=["none", "of another name", "of another role"],
)
async def test_a_session_opened_with_a_bootstrap_token_ends_with_the_token(stands: tuple[Bootstrap, ...]) -> None:
    of_root = session_of("root", "bootstrap")
    assert (await access(of_root, *stands, ROOT).identify("fls_1", NOW))[0] == of_root
    with pytest.raises(NotAuthenticated):
        await access(of_root, *stands).identify("fls_1", NOW)


async def test_a_session_opened_with_a_bootstrap_token_ends_with_the_tokens_secret() -> None:
    of_root, anew = session_of("root", "bootstrap"), replace(ROOT, key=b"root, with another secret")
    for opened_by, stands in ((ROOT.key, ROOT), (None, ROOT), (anew.key, anew), (None, anew)):
        assert (await access(of_root, stands, opened_by=opened_by).identify("fls_1", NOW))[0] == of_root
    with pytest.raises(NotAuthenticated):
        await access(of_root, anew, opened_by=ROOT.key).identify("fls_1", NOW)


async def test_only_an_open_api_lets_anybody_do_the_work_of_processes() -> None:
    anybody = session_of("anonymous", "none")
    caller = Caller(identity=anybody, key=b"key", request_id="r1")
    open_api, closed_api = access(anybody, open_to_all=True), access(anybody, ROOT)
    await open_api.require(caller, AccessRole.SYSTEM_OPERATOR, "x", NOW)
    await open_api.require_router(caller, "edge", "x", NOW)
    with pytest.raises(Denied):
        await closed_api.require(caller, AccessRole.SYSTEM_OPERATOR, "x", NOW)
    with pytest.raises(Denied):
        await closed_api.require_router(caller, "edge", "x", NOW)
