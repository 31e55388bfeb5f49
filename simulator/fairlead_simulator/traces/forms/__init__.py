"""Readers of traces in other makers' forms; a module each, but one for all CSV.

Each reader gives rows with the lines they are from, and notes what it leaves out or assumes. Danger: what a form does
not say must not be made up in silence.
"""
