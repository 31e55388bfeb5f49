"""Stores simulations (for people, for plans and for advice) and fitted engine models in Postgres."""
