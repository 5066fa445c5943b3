"""What an address is, which queue it leads to, and which filters match it."""
