"""Plans in Postgres, the data from which their effects are estimated, and the session homes that plans change."""
