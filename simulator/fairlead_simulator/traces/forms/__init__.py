"""Readers of traces in other tools' forms: one module per form, and one module for all CSV forms.

Each reader yields rows with their line numbers, and notes what it leaves out or assumes. The danger of a reader: it
could silently invent values that the file does not have.
"""
