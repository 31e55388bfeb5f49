"""What-if: accepts requests for simulations, checks their inputs before anything runs, and makes plans from the
results.

Other processes simulate. The danger: figures that seem comparable but are not. Therefore every run of a simulation has
the same requests, pool and seed.
"""
