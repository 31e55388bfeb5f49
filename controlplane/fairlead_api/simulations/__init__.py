"""What-if: simulations asked for, their inputs checked before anything runs, and plans made from what they found.

Nothing here simulates. The danger here: numbers that look comparable and are not, so every run of a simulation has the
same requests, pool and seed.
"""
