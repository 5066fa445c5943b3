"""The doors' common part: the plugin contract, the shared connection, admission, and one folder per protocol."""
