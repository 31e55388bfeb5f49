"""Simulations in Postgres (for people, for plans and for advice), and fitted engine models."""
