"""Stores the credentials of people, of processes and of the gateway's clients in Postgres."""
