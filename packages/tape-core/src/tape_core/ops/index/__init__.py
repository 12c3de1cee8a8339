"""Indexing: reading, writing and adding at keys, segments and windows."""
