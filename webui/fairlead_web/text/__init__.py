"""Text: numbers and times as people read them, addresses, time ranges, paged lists, YAML, and typed text.

Pure, and used by all other packages of the web UI. This package must not know pages or requests. The danger here is a
wrong unit: the browser's scripts format some of the same numbers (`static/js/formats.js`), and a browser test compares
both.
"""
