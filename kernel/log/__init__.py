"""The commit log: frames in segments on a disk, and everything about that disk."""
