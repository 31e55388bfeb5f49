"""Readers of traces in other tools' forms; one module per form, and one for all CSV forms.

Each reader yields rows with their line numbers, and notes what it leaves out or assumes. Danger: a reader must not
silently invent what a form does not say.
"""
