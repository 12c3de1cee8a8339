"""Python source of a Program, and the executable around it."""
