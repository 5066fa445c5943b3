"""The message kernel: one commit log, many partitions over it. It speaks no protocol's words and knows no socket."""
from kernel import compiled

compiled.install()    # before any other module of ours is imported
