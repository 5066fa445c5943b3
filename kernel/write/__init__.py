"""The way in: what arrives gathers into one frame, which is written, flushed and answered as one."""
