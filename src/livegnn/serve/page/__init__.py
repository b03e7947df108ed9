"""Files of the page at / of a service; livegnn/serve/service/page.py serves them."""
