"""The message kernel: one commit log, many queues over it. It speaks no protocol's words and knows no socket."""
