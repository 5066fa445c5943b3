"""The Spark source and sinks, a client of the hub; see README.md."""
