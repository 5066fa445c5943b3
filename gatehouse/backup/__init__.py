"""Backups of a hub: taken while it runs or from its data directory, added to, checked and put back."""
