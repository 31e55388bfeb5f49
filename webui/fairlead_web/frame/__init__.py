"""What all pages share: the request of a signed-in person, the frame around a page, and how the page is rendered.

`visits` represents a request with its person, API client and responses; `shells` reads the data of a page's frame;
`rendering` makes HTML of contexts; `routes` declares the paths of a page module; and `security` protects pages from
hostile sites. This package must not know any single page. The danger here is cost: everything read here is read for
every page.
"""
