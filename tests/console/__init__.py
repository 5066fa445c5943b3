"""The console in Debian's chromium, driven over the DevTools protocol."""
