"""Sessions that outlive connection and hub: what a client of a door is owed while it sleeps."""
