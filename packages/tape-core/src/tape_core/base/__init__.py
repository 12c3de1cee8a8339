"""Foundations without autodiff: data types, nested structures, contexts, files, checks of arguments."""
