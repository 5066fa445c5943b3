"""What journeys of messages are made of: trace contexts, events, which messages are followed, how many errors are kept.

Pure, and of the lowest layer: it knows no kernel and no door. `kernel/journeys/` records with it.
"""
