"""HTTP routes, one module for each API; each has a function `make_routes`."""
