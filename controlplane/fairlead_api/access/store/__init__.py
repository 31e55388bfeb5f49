"""Credentials in Postgres, of people and processes and of the gateway's clients."""
