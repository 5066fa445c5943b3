"""The Spark source and sink."""
