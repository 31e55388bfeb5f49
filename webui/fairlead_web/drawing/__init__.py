"""Answers of the API as what a page shows of them: pictures' coordinates, rows, lanes, steps and sentences.

Pure: templates draw what is computed here. It must not fetch, or know a request. Its danger is that two pages show one
figure differently, so one function makes each figure and its words.
"""
