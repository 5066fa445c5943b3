"""Links between hubs in different networks. Not built yet; see README.md."""
