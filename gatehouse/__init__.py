"""The launcher and command line: the only package that knows all the others.

The folders `kernel`, `gateways`, `relay`, `transactions`, `tracing` and `spark` lie beside this one in the repository.
Links here lead to them, so that they are imported, checked, compiled and installed under one name: `gatehouse.kernel`.
"""
__version__ = "0.1.0"
