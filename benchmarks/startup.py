"""What `import tape_core` costs above `import numpy`: fresh processes, in turns; the minimum."""

from __future__ import annotations

import os
import subprocess
import sys

IMPORTS = {
    "numpy": "import numpy",
    "tape": "import tape_core; tape_core.set_backend('numpy'); tape_core.get_backend()",
}

TIMED = """
from time import perf_counter, process_time
wall, cpu = perf_counter(), process_time()
{}
print(perf_counter() - wall, process_time() - cpu)
"""


def seconds(statement: str) -> list[float]:
    """Elapsed and processor time; the first also waits for the disk and for other processes."""
    code = TIMED.format(statement)
    # Not from source each time, as this variable would have it: what is installed has its bytecode beside it.
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    return [float(word) for word in done.stdout.split()]


def import_times(peers: list[str], rounds: int) -> dict[str, list[float]]:
    """Elapsed and processor seconds to import each; a round before the first fills the file cache."""
    statements = {peer: IMPORTS[peer] for peer in peers if peer in IMPORTS}
    measured: dict[str, list[list[float]]] = {peer: [] for peer in statements}
    for number in range(rounds + 1):
        for peer, statement in statements.items():
            elapsed = seconds(statement)
            if number:
                measured[peer].append(elapsed)
    return {peer: [min(column) for column in zip(*times, strict=True)] for peer, times in measured.items()}
