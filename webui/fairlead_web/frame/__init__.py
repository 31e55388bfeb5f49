"""The shared parts of all pages: the request of a signed-in person, the frame around a page, and the rendering of a
page.

`visits` represents a request with its person, API client and responses; `shells` reads the data of a page's frame;
`rendering` makes HTML of contexts; `routes` declares the paths of a page module; and `security` protects pages from
hostile sites. This package must not know any single page. The danger is the cost, because all data read here are read
for every page.
"""
