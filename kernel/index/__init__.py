"""Where a partition's records are in the log: in memory at the memtable, in a store behind it; and reading them."""
