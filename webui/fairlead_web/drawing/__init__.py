"""Turns answers of the API into the content of a page: pictures' coordinates, rows, lanes, steps and sentences.

Pure: templates draw what is computed here. It must not fetch data or know a request. Its danger is that two pages show
one figure differently, so one function computes each figure and its words.
"""
