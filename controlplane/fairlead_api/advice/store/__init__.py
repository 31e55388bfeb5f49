"""What advice is found from: a handful of statements over all pools, and signals of those that hurt."""
