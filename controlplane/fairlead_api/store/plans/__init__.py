"""Plans, and the evidence their effects are estimated from."""
