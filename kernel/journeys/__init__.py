"""Journeys of messages: what happened to each that is followed, written beside it, and found again."""
