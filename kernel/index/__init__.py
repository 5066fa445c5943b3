"""Where a partition's records are in the log: in memory at the tail, in a store behind it; and reading them."""
