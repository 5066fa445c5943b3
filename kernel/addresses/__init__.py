"""What an address is, which partition it leads to, and which filters match it."""
