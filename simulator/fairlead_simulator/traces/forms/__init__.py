"""Readers of traces in other tools' forms: one module per form, and one for all CSV forms.

Each reader yields rows with their line numbers, and notes what it leaves out or assumes. The danger is a reader that
silently invents values that a file does not have.
"""
