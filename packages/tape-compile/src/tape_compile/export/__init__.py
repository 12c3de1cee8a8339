"""Files that run a compiled function without Tape."""
