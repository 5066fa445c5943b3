"""Half messages: taken in, decided about, and asked about where their senders are silent. See README.md."""
