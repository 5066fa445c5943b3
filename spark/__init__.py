"""The Spark source and sinks, a client of the hub. Not built yet; see README.md."""
