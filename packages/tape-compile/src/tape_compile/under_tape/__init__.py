"""Compiled functions called while a tape records: one record with a compiled derivative."""
