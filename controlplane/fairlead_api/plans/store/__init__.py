"""Plans in Postgres, the evidence their effects are estimated from, and the homes of sessions that plans change."""
