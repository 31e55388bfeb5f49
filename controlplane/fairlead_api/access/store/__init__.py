"""Credentials in Postgres: of people, of processes, and of the gateway's clients."""
