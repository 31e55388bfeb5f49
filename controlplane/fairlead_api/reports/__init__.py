"""Routers' reports: checks which rows can be stored, and stores each report once.

It must not refuse a whole report because of one bad row, nor store a row before the report's id is claimed. The danger
here: storing a report twice, or a row of an event that never happened.
"""
