"""Measurements: each file says what it measures and prints a table. `make bench` runs them."""
