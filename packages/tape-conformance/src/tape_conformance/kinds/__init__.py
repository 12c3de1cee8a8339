"""The checks: of the backend contract, of ops, of transformations, of compiled functions and of tapes."""
