"""Admission: one path for all doors. Authenticate, authorize, quota, trace, in that order."""
