"""The version of every package in this repository: each pyproject.toml reads it from here."""

__version__ = "0.1.0"
