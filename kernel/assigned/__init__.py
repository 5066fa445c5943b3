"""Assigned groups: members that get whole partitions, agree on who gets which, and commit offsets."""
