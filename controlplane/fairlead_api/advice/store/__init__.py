"""The data for advice: a handful of statements over all pools, and signals of the pools that miss their objectives."""
