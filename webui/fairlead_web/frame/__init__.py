"""The common parts of all pages: one request of a signed-in person, the shell around a page, and how the page is
rendered.

`visits` is a request with its person, client and answers, `shells` the data of a page's frame, `rendering` makes HTML
of contexts, `routes` are a page module's addresses, and `security` protects pages from hostile pages. It must not know
any single page. Its danger is weight: everything read here is read for every page.
"""
