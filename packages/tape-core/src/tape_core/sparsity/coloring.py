"""Graph colouring: columns or rows of one colour are found by one product with the Jacobian.

A. Curtis, M. Powell and J. Reid, "On the estimation of sparse Jacobian matrices", 1974; A. Gebremedhin, F. Manne and
A. Pothen, "What color is your Jacobian? Graph coloring for computing derivatives", SIAM Review 47, 2005.
Sets of colours are integers with a bit for each colour.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tape_core.typing import SparseMatrix


def columns(pattern: SparseMatrix) -> tuple[Any, int]:
    """Colour the columns so that two which share a row differ; return the colours and their number.

    Greedy, with the columns in order or the fullest first, whichever takes fewer. No colouring has fewer colours than
    the fullest row has entries. A column without entries has colour 0, as any other might have.

    Args:
        pattern: a csr_array.
    """
    n = pattern.shape[1]
    least = int(np.diff(pattern.indptr).max(initial=0))
    # A full row, in which all columns meet.
    if least == n:
        return np.arange(n), n
    by_column = pattern.tocsc()
    starts, rows = by_column.indptr.tolist(), by_column.indices.tolist()
    found, count = _greedy(range(n), starts, rows, pattern.shape[0])
    if count > least:
        fullest_first = np.argsort(-np.diff(by_column.indptr), kind="stable").tolist()
        again, fewer = _greedy(fullest_first, starts, rows, pattern.shape[0])
        if fewer < count:
            found, count = again, fewer
    return np.asarray(found, np.int64), count


def _greedy(order: Sequence[int], starts: list[int], rows: list[int], m: int) -> tuple[list[int], int]:
    taken = [0] * m  # by row, the colours of its columns
    colors = [0] * (len(starts) - 1)
    used = 0
    for j in order:
        own = rows[starts[j] : starts[j + 1]]
        forbidden = 0
        for i in own:
            forbidden |= taken[i]
        bit = ~forbidden & (forbidden + 1)  # the lowest bit that is not set: the first colour that is free
        for i in own:
            taken[i] |= bit
        used |= bit if own else 0
        colors[j] = bit.bit_length() - 1
    return colors, used.bit_length()


def star(pattern: SparseMatrix) -> tuple[Any, int]:
    """Colour a symmetric matrix: neighbours differ, and no path of four vertices has two colours only.

    So of the entries (i, j) and (j, i) one is alone with its colour in its row. A matrix with a full row and column
    takes two colours, where columns without a row in common would need as many as there are.

    Args:
        pattern: a symmetric csr_array.
    """
    n = pattern.shape[0]
    starts, neighbors = pattern.indptr.tolist(), pattern.indices.tolist()
    bits = [0] * n  # the colour of each vertex, as a bit; 0 while it has none
    once, twice = [0] * n, [0] * n  # colours that one neighbour has, and several
    first: list[dict[int, int]] = [{} for _ in range(n)]  # by colour, the first neighbour that has it
    # The colours of neighbours x of a vertex v that have another neighbour of its colour: a path z-v-x-y ends there.
    closed = [0] * n
    used = 0
    # Vertices with many neighbours first, while few colours are forbidden to them.
    for v in np.argsort(-np.diff(pattern.indptr), kind="stable").tolist():
        own = [w for w in neighbors[starts[v] : starts[v + 1]] if w != v]
        forbidden = 0
        for w in own:
            if bits[w]:
                forbidden |= bits[w] | closed[w]
                if twice[v] & bits[w]:  # u-v-w-x, with u of the colour of w
                    forbidden |= once[w]
        bit = bits[v] = ~forbidden & (forbidden + 1)
        used |= bit
        for w in own:
            if once[w] & bit:
                if not twice[w] & bit:
                    twice[w] |= bit
                    closed[first[w][bit]] |= bits[w]
                closed[v] |= bits[w]
            else:
                once[w] |= bit
                first[w][bit] = v
        if twice[v]:  # its neighbours that share a colour now have it between them
            for w in own:
                if bits[w] & twice[v]:
                    closed[w] |= bit
    return np.asarray([bit.bit_length() - 1 for bit in bits], np.int64), used.bit_length()
