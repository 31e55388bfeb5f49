"""The sources of advice: a handful of statements over all pools, and signals of the pools that hurt."""
