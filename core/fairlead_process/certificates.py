"""The certificate of a TLS port, read again when its files change, and the authorities of its clients."""

from __future__ import annotations

import logging
import ssl
from collections.abc import Sequence
from pathlib import Path

from fairlead.errors import InvalidInput

LOOK_SECONDS = 60.0
"""Pause in seconds between two checks of a certificate's files; a mounted Secret changes about as often."""

logger = logging.getLogger(__name__)


class Certificate:
    """TLS with the certificate and key in two files; the environment variables named in `variables` give their paths.

    Each new connection uses the current `context`. `protocols` are offered by ALPN. Clients may show certificates of
    the authorities given to `trust`.
    """

    def __init__(self, certificate: Path, key: Path, variables: str, protocols: Sequence[str]) -> None:
        """Read the certificate and key. Raises InvalidInput if they cannot be used."""
        self._files = certificate, key
        self._variables = variables
        self._protocols = list(protocols)
        self._authorities = ""
        self._read = self._times()
        self._looked_at = float("-inf")
        self._problem = ""
        self._context = self._made()

    def context(self) -> ssl.SSLContext:
        """Return the newest TLS context that could be created."""
        return self._context

    def trust(self, authorities: str) -> None:
        """Trust exactly these authorities, given in PEM, when the certificate of a client is verified. A client may
        also show no certificate.

        Raises ssl.SSLError for text that is not PEM; nothing changes then.
        """
        if authorities != self._authorities:
            before, self._authorities = self._authorities, authorities
            try:
                self._context = self._made()
            except (InvalidInput, ssl.SSLError):
                self._authorities = before
                raise

    def look(self, now: float) -> None:
        """Read the files again if they have changed, at most once a minute (`now` in seconds); an unusable pair changes
        nothing and is logged once.
        """
        if now - self._looked_at < LOOK_SECONDS:
            return
        self._looked_at, times = now, self._times()
        if times == self._read:
            return
        try:
            self._context = self._made()
        except (InvalidInput, OSError) as problem:
            if str(problem) != self._problem:
                self._problem = str(problem)
                logger.warning("a certificate is not replaced; the last one stays", extra={"error": self._problem})
            return
        self._read, self._problem = times, ""
        logger.info("a certificate was read again", extra={"file": str(self._files[0])})

    def _made(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.set_alpn_protocols(self._protocols)
        try:
            context.load_cert_chain(*self._files)
        except (OSError, ssl.SSLError) as error:
            raise self._unusable(error) from None
        if self._authorities:
            _verify_clients(context, self._authorities)
        return context

    def _unusable(self, error: OSError) -> InvalidInput:
        reason = error.strerror or str(error)
        remedy = f"write paths of a certificate and its key in PEM that this process can read ({reason})"
        return InvalidInput(self._variables, ", ".join(map(str, self._files)), remedy)

    def _times(self) -> tuple[int, ...]:
        return tuple(_changed_at(path) for path in self._files)


def _verify_clients(context: ssl.SSLContext, authorities: str) -> None:
    """Set the context to verify clients. Sessions are not resumed, because a resumed session would carry a certificate
    that was verified before.
    """
    context.load_verify_locations(cadata=authorities)
    context.verify_mode = ssl.CERT_OPTIONAL
    context.options |= ssl.OP_NO_TICKET
    context.num_tickets = 0


def _changed_at(path: Path) -> int:
    """Return the time at which the file was last changed, in nanoseconds; 0 if the file does not exist."""
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return 0
