"""Turns responses of the API into the content of a page: coordinates of pictures, rows, lanes, steps and sentences.

Pure: templates draw what is computed here. This package must not fetch data or know a request. The danger: two pages
show one figure differently. Therefore each figure and its words are computed by one function.
"""
