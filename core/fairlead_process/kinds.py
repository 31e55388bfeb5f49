"""The kinds of values that an environment variable may hold: how each kind is parsed, and how an error message
describes it.
"""

import math
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from pathlib import Path
from typing import Generic, Protocol, TypeVar
from urllib.parse import urlsplit

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class Kind(Protocol[T_co]):
    """One kind of value.

    `wanted` completes the sentence "write …"; docs/settings.md shows `unit`; a `secret` is never shown.
    """

    @property
    def wanted(self) -> str: ...

    @property
    def unit(self) -> str: ...

    @property
    def secret(self) -> bool: ...

    def parse(self, text: str) -> T_co:
        """Return the value in `text`. Raises ValueError, or InvalidInput if `wanted` alone is not a sufficient
        remedy.
        """


@dataclass(frozen=True, slots=True)
class Text:
    """Any text that is not empty."""

    wanted: str
    unit: str = "text"
    secret: bool = False

    def parse(self, text: str) -> str:
        return text


@dataclass(frozen=True, slots=True)
class Parsed(Generic[T]):
    """A value that the function `parse` makes from the text; `parse` raises ValueError or InvalidInput."""

    parser: Callable[[str], T]
    wanted: str
    unit: str = "text"
    secret: bool = False

    def parse(self, text: str) -> T:
        return self.parser(text)


@dataclass(frozen=True, slots=True)
class Whole:
    """A whole number of `noun`, such as bytes; bounds are inclusive."""

    noun: str
    least: int = 0
    most: int | None = None
    secret: bool = field(default=False, init=False)

    @property
    def wanted(self) -> str:
        return f"a whole number of {self.noun}, {_bounds(self.least, self.most)}"

    @property
    def unit(self) -> str:
        return f"{self.noun}, {_bounds(self.least, self.most)}"

    def parse(self, text: str) -> int:
        if not (text.isascii() and text.isdecimal()):
            raise ValueError(text)
        number = int(text)
        if number < self.least or (self.most is not None and number > self.most):
            raise ValueError(text)
        return number


@dataclass(frozen=True, slots=True)
class Number:
    """A finite number of `noun` (empty: a plain number).

    `least` itself is not allowed if `above` is set; `most` is always allowed.
    """

    noun: str
    least: float = 0.0
    most: float | None = None
    above: bool = False
    secret: bool = field(default=False, init=False)

    @property
    def wanted(self) -> str:
        return f"a number{' of ' if self.noun else ''}{self.noun}, {self._limits()}"

    @property
    def unit(self) -> str:
        return f"{self.noun}, {self._limits()}" if self.noun else self._limits()

    def _limits(self) -> str:
        return f"above {self.least:g}" if self.above else _bounds(self.least, self.most)

    def parse(self, text: str) -> float:
        number = float(text) if "_" not in text else math.nan
        low = number <= self.least if self.above else number < self.least
        if not math.isfinite(number) or low or (self.most is not None and number > self.most):
            raise ValueError(text)
        return number


@dataclass(frozen=True, slots=True)
class Choice:
    """One of several fixed words."""

    words: tuple[str, ...]
    secret: bool = field(default=False, init=False)

    @property
    def wanted(self) -> str:
        return " or ".join((", ".join(self.words[:-1]), self.words[-1]))

    @property
    def unit(self) -> str:
        return ", ".join(f"`{word}`" for word in self.words)

    def parse(self, text: str) -> str:
        if text not in self.words:
            raise ValueError(text)
        return text


@dataclass(frozen=True, slots=True)
class Switch:
    """1 or 0."""

    wanted: str = field(default="1 or 0", init=False)
    unit: str = field(default="`1`, `0`", init=False)
    secret: bool = field(default=False, init=False)

    def parse(self, text: str) -> bool:
        if text not in {"0", "1"}:
            raise ValueError(text)
        return text == "1"


@dataclass(frozen=True, slots=True)
class Address:
    """An http or https URL of a server; a slash at its end is dropped.

    The whole URL is checked here, so that no later use of it fails: host and port must be possible, and it has no user,
    query or fragment, because no server of ours has such an address.
    """

    example: str
    secret: bool = field(default=False, init=False)
    unit: str = field(default="URL", init=False)

    @property
    def wanted(self) -> str:
        return f"an address such as {self.example} without user and password"

    def parse(self, text: str) -> str:
        parts = urlsplit(text)
        excess = "@" in parts.netloc or "?" in text or "#" in text or any(sign.isspace() or not sign.isprintable() for sign in text)
        if parts.scheme not in {"http", "https"} or excess or parts.port == 0 or not _is_host(parts.hostname or ""):
            raise ValueError(text)
        return text.rstrip("/")


@dataclass(frozen=True, slots=True)
class Addresses:
    """Addresses of the same server, at least one, separated by commas, without repetition."""

    example: str
    secret: bool = field(default=False, init=False)
    unit: str = field(default="URLs with commas", init=False)

    @property
    def wanted(self) -> str:
        return f"an address such as {self.example} without user and password, or several with commas between them"

    def parse(self, text: str) -> tuple[str, ...]:
        found = tuple(dict.fromkeys(Address(self.example).parse(part.strip()) for part in text.split(",") if part.strip()))
        if not found:
            raise ValueError(text)
        return found


@dataclass(frozen=True, slots=True)
class Networks:
    """IP networks separated by commas, each with its prefix length and without host bits."""

    wanted: str = field(default="networks such as 10.0.0.0/8 with commas between them", init=False)
    unit: str = field(default="networks with commas", init=False)
    secret: bool = field(default=False, init=False)

    def parse(self, text: str) -> tuple[IPv4Network | IPv6Network, ...]:
        return tuple(ip_network(part.strip()) for part in text.split(",") if part.strip())


@dataclass(frozen=True, slots=True)
class Names:
    """Names separated by commas."""

    wanted: str = field(default="names with commas between them", init=False)
    unit: str = field(default="names with commas", init=False)
    secret: bool = field(default=False, init=False)

    def parse(self, text: str) -> tuple[str, ...]:
        return tuple(name.strip() for name in text.split(",") if name.strip())


@dataclass(frozen=True, slots=True)
class File:
    """A path; the file is opened only when it is used."""

    wanted: str = field(default="the path of a file", init=False)
    unit: str = field(default="path", init=False)
    secret: bool = field(default=False, init=False)

    def parse(self, text: str) -> Path:
        return Path(text)


_LABEL = re.compile(r"[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?", re.IGNORECASE)
"""The pattern of one part of a host's name. Underscores are allowed, though DNS has none."""

PORT = Whole("port", 0, 65535)


def _is_host(name: str) -> bool:
    """Return whether the name is an IP address or could be a host's name. Raises ValueError for a name that IDNA cannot
    write.
    """
    if ":" in name:
        return bool(ip_address(name.partition("%")[0]))
    return len(name) <= 253 and all(_LABEL.fullmatch(label) for label in name.encode("idna").decode("ascii").removesuffix(".").split("."))


def _bounds(least: float, most: float | None) -> str:
    return f"at least {least:g}" if most is None else f"{least:g} to {most:g}"
