"""Text: numbers and times as people read them, addresses, time ranges, lists by pages, YAML, and typed text.

Pure, and below everything else. It must not know pages or requests. Its danger is a unit: the browser's scripts write
some of the same numbers (`static/js/formats.js`), and a browser test compares both.
"""
