"""Half messages, check-back and atomic appends. Not built yet; see README.md."""
