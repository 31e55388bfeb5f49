"""Simulations in Postgres: of people, of plans and for advice; and fitted engines."""
