"""Receipts: a sender is told at an address of his what became of a message."""
