"""Code that the tests share, here and in what uses processkube. Nothing here is shipped."""
