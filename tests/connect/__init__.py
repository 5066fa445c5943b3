"""Kafka Connect and MirrorMaker 2 as they are, against real hubs. `make interop` fetches them and runs this."""
