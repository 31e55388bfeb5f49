"""Makes webhooks from people's input, and checks their receivers' addresses: when a webhook is made, and again before
each use. Pure.

For a webhook, this process sends requests to an address that a person chose. The requests must not reach addresses that
only this process can reach. Allowed are public addresses, and addresses in the networks that a setting names. http,
which anybody on the network path can read, is allowed only inside these networks. A request is sent to exactly the IP
address that was checked, so that a host name cannot resolve to another address in between.
https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from urllib.parse import urlsplit

from fairlead.errors import InvalidInput
from fairlead.tables import PoolKey
from fairlead_api.infra.callers import Caller, digest
from fairlead_client.resources.webhooks import SUBSCRIBED, NoticeKind, Webhook, WebhookRequest

IpAddress = IPv4Address | IPv6Address
Networks = Sequence[IPv4Network | IPv6Network]
LONGEST_URL = 2000
PORTS = {"http": 80, "https": 443}
_NAT64 = IPv6Network("64:ff9b::/96")
REMEDY = "write https://host/path without user, password and fragment"


@dataclass(frozen=True, slots=True, kw_only=True)
class Receiver:
    """The destination of a webhook's notices. `url` is as confidential as a password, so `repr` does not show it."""

    url: str = field(repr=False)
    scheme: str
    host: str
    port: int

    @property
    def origin(self) -> str:
        """The origin of the URL (the part before its path), which may be shown."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}" + ("" if self.port == PORTS[self.scheme] else f":{self.port}")


class NotAllowed(Exception):
    """Requests to this address are not allowed. The text gives the reason; of the address, it names at most
    the host.
    """


def receiver_of(url: str) -> Receiver:
    """Return the receiver with this URL. Raises InvalidInput, which shows nothing of the URL, because any part of it
    may contain a password.
    """
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise InvalidInput("url", None, REMEDY) from error
    odd = len(url) > LONGEST_URL or not url.isascii() or not url.isprintable() or " " in url or "\\" in url
    if odd or parts.scheme not in PORTS or not parts.hostname or "@" in parts.netloc or "#" in url or port == 0:
        raise InvalidInput("url", None, REMEDY)
    return Receiver(url=url, scheme=parts.scheme, host=parts.hostname, port=port or PORTS[parts.scheme])


def judged(receiver: Receiver, networks: Networks) -> None:
    """Raises InvalidInput for a receiver that can never be allowed: its host is an IP address that is neither public
    nor in `networks`, or it uses http although `networks` is empty.
    """
    try:
        if receiver.scheme == "http" and not networks:
            raise NotAllowed("http is only for receivers in the networks of FAIRLEAD_WEBHOOK_NETWORKS, which is empty")
        if (literal := literal_of(receiver.host)) is not None:
            allowed(receiver, [literal], networks)
    except NotAllowed as error:
        raise InvalidInput("url", receiver.origin, f"{error}; write another address") from error


def allowed(receiver: Receiver, found: Iterable[IpAddress], networks: Networks) -> IpAddress:
    """Return the first of the host's addresses `found` to which the request may be sent. Raises NotAllowed if there is
    none.
    """
    for address in found:
        inside = any(address in network for network in networks)
        if inside or (receiver.scheme == "https" and _is_public(address)):
            return address
    if receiver.scheme == "http":
        raise NotAllowed(f"{receiver.host} is not in the networks of FAIRLEAD_WEBHOOK_NETWORKS, and http is only for these")
    raise NotAllowed(f"{receiver.host} is neither public nor in the networks of FAIRLEAD_WEBHOOK_NETWORKS")


def literal_of(host: str) -> IpAddress | None:
    """Return the host as an IP address; None if the host is a name."""
    try:
        return ip_address(host)
    except ValueError:
        return None


def _is_public(address: IpAddress) -> bool:
    """Return whether everybody on the internet can reach the address. An IPv6 address that contains an IPv4 address is
    public only if the IPv4 address is public too.
    """
    inner = _embedded(address)
    return address.is_global and not address.is_multicast and (inner is None or _is_public(inner))


def _embedded(address: IpAddress) -> IPv4Address | None:
    if isinstance(address, IPv4Address):
        return None
    if address in _NAT64:
        return IPv4Address(int(address) & 0xFFFF_FFFF)
    return address.ipv4_mapped or address.sixtofour


LONGEST_NAME = 200
MOST_POOLS = 100


def new_webhook(request: WebhookRequest, secret: str, networks: Networks, caller: Caller, now: datetime) -> Webhook:
    """Return the webhook that a person wants to make. Only this response contains the webhook's secret. Raises
    InvalidInput.
    """
    if not request.name.strip() or len(request.name) > LONGEST_NAME or not request.name.isprintable():
        raise InvalidInput("name", request.name, f"write a name of at most {LONGEST_NAME} printable characters")
    receiver = receiver_of(request.url)
    judged(receiver, networks)
    return Webhook(
        id=f"wh-{digest(secret).hex()[:16]}",
        name=request.name.strip(),
        origin=receiver.origin,
        form=request.form,
        kinds=_kinds(request.kinds),
        pools=_pools(request.pools),
        created_at=now,
        created_by=caller.identity.subject,
        secret=secret,
    )


def _kinds(named: Iterable[NoticeKind]) -> tuple[NoticeKind, ...]:
    if NoticeKind.TEST in named:
        raise InvalidInput("kinds", NoticeKind.TEST, f"name some of {', '.join(SUBSCRIBED)}; a test goes to every webhook")
    return tuple(sorted(set(named)))


def _pools(named: tuple[str, ...]) -> tuple[str, ...]:
    if len(named) > MOST_POOLS:
        raise InvalidInput("pools", f"{len(named)} names", f"name at most {MOST_POOLS} pools, or none for all pools")
    for name in named:
        try:
            PoolKey.parse(name)
        except ValueError:
            raise InvalidInput("pools", name, "write namespace/name") from None
    return tuple(sorted(set(named)))
