"""Trace context, trace events and their lookup. Not built yet; see README.md."""
