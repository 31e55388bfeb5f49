"""Reads the documents of the cluster. Pure: nothing in this package calls the cluster. The danger: people edit
annotations by hand. Therefore the content of annotations is never trusted.
"""
