"""Access control: tokens, login links, web sessions, identity providers, gateway keys, and rate limits.

This package must not compare secrets in the clear or name a secret in an error. The danger here: an identity may stay
cached after its token was revoked.
"""
