"""What leaves the log, and what of it is kept because somebody still needs it."""
