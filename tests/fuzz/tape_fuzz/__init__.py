"""Grammars of random programs, and the search for one that breaks a promise of Tape's.

The fuzzers use nothing but what users call. So they can be pointed at any commit: put its packages first on PYTHONPATH.
"""
