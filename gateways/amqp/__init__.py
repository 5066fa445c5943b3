"""The AMQP 0-9-1 door. Not built yet; see README.md."""
