"""Stores plans in Postgres, reads the data from which their effects are estimated, and changes the bindings of
sessions.
"""
