"""The checks: what a backend provides, what ops do on it, what tapes do on it."""
