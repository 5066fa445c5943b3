"""`gateways.toml` and the environment, read and checked."""
