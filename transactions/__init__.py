"""Half messages, check-back and atomic appends; see README.md."""
