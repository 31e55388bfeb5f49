"""Verification of a server's certificate by all clients of Fairlead: chain, dates and host name, as in kubectl, curl
and Go.

From Python 3.13 on, `ssl.create_default_context` also refuses authorities without key usage or key identifiers, because
RFC 5280 calls them malformed. Many clusters and companies have such authorities, and a plain `openssl req -x509` makes
them. Only that check is switched off here. https://docs.python.org/3/library/ssl.html#ssl.create_default_context
"""

import os
import ssl

from fairlead.errors import InvalidInput


def client_context() -> ssl.SSLContext:
    """Return a context that trusts the authorities of `SSL_CERT_FILE` or `SSL_CERT_DIR`; if neither is set, the
    authorities of certifi.

    Raises InvalidInput for an `SSL_CERT_FILE` without certificates.
    """
    import certifi  # with httpx only: an engine's image has neither

    named, folder = os.environ.get("SSL_CERT_FILE") or None, os.environ.get("SSL_CERT_DIR") or None
    file = certifi.where() if named is None and folder is None else named
    try:
        return lenient(ssl.create_default_context(cafile=file, capath=folder))
    except OSError as error:  # ssl.SSLError is one
        raise InvalidInput(
            "SSL_CERT_FILE", named, f"name a readable file of certificates in PEM form ({error.strerror or error})"
        ) from error


def lenient(context: ssl.SSLContext) -> ssl.SSLContext:
    """Switch off RFC 5280's formal checks in the context and return it."""
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    return context
