"""Hostile bytes for every door: mutations of real conversations, sent to a real hub that must not mind."""
