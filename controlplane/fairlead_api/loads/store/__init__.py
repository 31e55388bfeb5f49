"""Load samples in Postgres, and all rollups of them."""
