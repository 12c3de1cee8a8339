"""Tracing: arrays that record the calls made with them as instructions."""
