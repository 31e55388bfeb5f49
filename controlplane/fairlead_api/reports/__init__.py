"""Routers' reports: checks which rows can be stored, and stores each report once.

This package must not refuse a whole report because of one bad row, nor store a row before the report's id is claimed.
The danger here: a report that is stored twice, or a row about an event that never happened.
"""
