"""The notices that receivers get, and when they get them again."""

import asyncio
import json
import socket
import ssl
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address, ip_network

import httpx
import pytest

from fairlead_api.infra.errors import StoreUnavailable
from fairlead_api.webhooks import posting
from fairlead_api.webhooks.deliveries import (
    FIRST_PAUSE_SECONDS,
    LONGEST_PAUSE_SECONDS,
    MOST_ATTEMPTS,
    Claimed,
    Deliveries,
    Outcome,
    outcome_of,
    pause_seconds,
)
from fairlead_api.webhooks.messages import Message, body, headers, new_secret, signature
from fairlead_api.webhooks.posting import HttpPost, words_of
from fairlead_api.webhooks.receivers import IpAddress, Receiver, receiver_of
from fairlead_client.resources.webhooks import NoticeAttempt, NoticeForm, NoticeKind

AT = datetime(2026, 11, 29, 21, 0, tzinfo=UTC)
MESSAGE = Message(
    id="msg_1",
    kind=NoticeKind.INSTANCE_LOST,
    pool="default/chat",
    subject="chat-a",
    words="Instance chat-a of default/chat is lost: NotReady",
    facts={"reason": "NotReady"},
    at=AT,
    form=NoticeForm.JSON,
    secret=new_secret(bytes(32)),
)


def test_the_signature_is_that_of_the_specification() -> None:
    """The test vector is from the specification's own libraries, such as libraries/go/webhook_test.go."""
    secret, content = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", b'{"test": 2432232314}'
    found = signature(secret, "msg_p5jXN8AQM9LWM0D4loKWxJek", "1614265330", content)
    assert found == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


def test_a_notice_is_json_with_its_type_its_time_and_its_facts() -> None:
    assert json.loads(body(MESSAGE)) == {
        "type": "instance.lost",
        "timestamp": "2026-11-29T21:00:00Z",
        "data": {"pool": "default/chat", "subject": "chat-a", "words": MESSAGE.words, "reason": "NotReady"},
    }
    sent = headers(MESSAGE, body(MESSAGE), AT + timedelta(seconds=90.7))
    assert (sent["webhook-id"], sent["webhook-timestamp"]) == ("msg_1", str(int(AT.timestamp()) + 90))
    assert "secret" not in repr(MESSAGE)


def test_slack_gets_a_text_without_its_markup() -> None:
    slack = replace(MESSAGE, form=NoticeForm.SLACK, words="<!channel> a & b")
    assert json.loads(body(slack)) == {"text": "&lt;!channel&gt; a &amp; b"}


def test_pauses_grow_to_hours_and_the_last_attempt_is_the_last() -> None:
    pauses = [pause_seconds(number, "msg_1") for number in range(1, MOST_ATTEMPTS)]
    assert FIRST_PAUSE_SECONDS <= pauses[0] < 6
    assert all(LONGEST_PAUSE_SECONDS <= pause <= LONGEST_PAUSE_SECONDS * 1.2 for pause in pauses[6:])
    assert 20 * 3600 < sum(pauses) < 30 * 3600
    failed, done = NoticeAttempt(at=AT, status=500, problem="answered 500"), NoticeAttempt(at=AT, status=204)
    for number in range(1, MOST_ATTEMPTS + 1):
        claimed = Claimed(message=MESSAGE, url="https://x", number=number)
        assert (outcome_of(claimed, failed, AT).due_at is None) == (number == MOST_ATTEMPTS)
        assert outcome_of(claimed, done, AT).due_at is None


def transport(handle: Callable[[httpx.Request], httpx.Response]) -> httpx.AsyncBaseTransport:
    return httpx.MockTransport(handle)


def names(found: dict[str, str]) -> Callable[[Receiver], object]:
    """Return a resolver for these names."""

    async def resolve(receiver: Receiver) -> list[IpAddress]:
        if receiver.host not in found:
            raise socket.gaierror(-2, f"no {receiver.url}")
        return [ip_address(found[receiver.host])]

    return resolve


async def test_the_request_goes_to_the_address_that_was_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[httpx.Request] = []

    def handle(request: httpx.Request) -> httpx.Response:
        asked.append(request)
        return httpx.Response(202)

    monkeypatch.setattr(posting, "resolved", names({"hooks.example.com": "93.184.216.34", "inside": "10.1.2.3", "evil": "169.254.169.254"}))
    post = HttpPost((ip_network("10.1.0.0/16"),), {}, transport(handle))
    assert await post(receiver_of("https://hooks.example.com:8443/a?b=c"), b"{}", {"webhook-id": "msg_1"}) == (202, None)
    assert await post(receiver_of("http://inside/a"), b"{}", {}) == (202, None)
    first, second = asked
    assert (str(first.url), first.headers["host"]) == ("https://93.184.216.34:8443/a?b=c", "hooks.example.com:8443")
    assert first.extensions["sni_hostname"] == "hooks.example.com", "TLS checks the name"
    assert (str(second.url), second.headers["host"]) == ("http://10.1.2.3/a", "inside")
    assert await post(receiver_of("https://evil/a"), b"{}", {}) == (
        None,
        "evil is neither public nor in the networks of FAIRLEAD_WEBHOOK_NETWORKS",
    )
    assert await post(receiver_of("https://nowhere/a"), b"{}", {}) == (None, "the host's name is not known")
    assert len(asked) == 2


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (httpx.ConnectTimeout("https://x/secret"), "no answer within 10 s"),
        (TimeoutError("secret"), "no answer within 10 s"),
        (httpx.ConnectError("secret refused"), "the receiver takes no connection"),
        (httpx.ConnectError("[SSL: CERTIFICATE_VERIFY_FAILED] certificate of secret"), "the receiver's certificate is not trusted"),
        (httpx.RemoteProtocolError("secret"), "the connection broke off"),
        (httpx.ProxyError("secret"), "the proxy refused the request"),
        (ssl.SSLError("secret"), "the receiver takes no connection"),
        (socket.gaierror(-2, "secret"), "the host's name is not known"),
    ],
)
def test_a_failure_is_told_in_words_without_the_address(error: Exception, words: str) -> None:
    assert words_of(error) == words


@dataclass
class Store:
    """A store with two due notices. The outcome of the first cannot be recorded."""

    recorded: list[Outcome] = field(default_factory=list)

    async def claim(self, now: datetime) -> Sequence[Claimed]:
        return [Claimed(message=replace(MESSAGE, id=name), url="https://x", number=1) for name in ("first", "second")]

    async def record(self, outcome: Outcome, now: datetime) -> None:
        if outcome.notice == "first":
            raise StoreUnavailable("the database does not answer")
        self.recorded.append(outcome)


async def test_an_outcome_that_cannot_be_recorded_interrupts_no_other_attempt() -> None:
    store = Store()

    async def post(receiver: Receiver, content: bytes, sent: dict[str, str]) -> tuple[int | None, str | None]:
        if sent["webhook-id"] == "second":
            for _ in range(5):
                await asyncio.sleep(0)  # the first has failed by then
        return 204, None

    with pytest.raises(StoreUnavailable):
        await Deliveries(store, post, lambda: AT, lambda: 0.0).deliver(AT)
    assert [one.notice for one in store.recorded] == ["second"]
