"""How much may come in and go out: limits, what they have left, and which of them speak of whom."""
