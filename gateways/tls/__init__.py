"""TLS of a listener: its settings, its certificates, and the transport between socket and door."""
