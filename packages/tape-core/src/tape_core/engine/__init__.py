"""The heart: Tensors, ops and their rules, tapes, and the reverse sweep."""
