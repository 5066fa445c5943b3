"""What every byte-stream door shares about sockets: listening, the connection, its list, its end."""
