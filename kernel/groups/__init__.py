"""Leases: groups whose members take messages one by one, ack them in any order, and share queues of every kind."""
