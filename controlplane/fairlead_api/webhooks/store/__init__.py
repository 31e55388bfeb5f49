"""Webhooks and their notices in Postgres."""
