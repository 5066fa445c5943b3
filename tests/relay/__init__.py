"""Tests of the relay: machines joined by lists of bytes, processes, and networks that cannot reach each other."""
