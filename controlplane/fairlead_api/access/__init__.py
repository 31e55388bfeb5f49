"""Access control: tokens, login links, web sessions, identity providers, gateway keys, and limits of how often.

It must not compare secrets in the clear or name a secret in an error. The danger here: an identity that is still
remembered after its token was revoked.
"""
