"""Linear algebra: products, norms, inverses, decompositions and functions of matrices."""
