"""Load samples in Postgres, and their rollups by instance and by pool."""
