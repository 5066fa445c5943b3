"""Durable state as keyed records in the log: definitions, and their copy in SQL."""
