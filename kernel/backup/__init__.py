"""The log as it is at one moment, copied while the hub goes on."""
