"""Load samples in Postgres, and all that is rolled up from them."""
