"""Sparse Jacobians: which entries may differ from 0, and few products that hold all of them.

`index_sets` has sets of elements and their unions, `detection` what ops do with them, `coloring` which columns or rows
one product may have together. `derivatives` puts them together. They import NumPy and SciPy, and so are imported where
they are used.
"""
