"""The message kernel: one commit log, many partitions over it. It speaks no protocol's words and knows no socket."""
