"""The way out to whoever waits: live subscribers, long polls, retained values."""
