"""What a library costs before it computes: the time to import it, and its size on the disk."""

from __future__ import annotations

import json
import os
import subprocess
from time import perf_counter

from peers import PEERS

# What is imported, and the distributions that are counted with all that they require.
LIBRARIES = {
    "numpy": ("import numpy", ["numpy"]),
    "tape": ("import tape_core; tape_core.set_backend('numpy'); tape_core.get_backend()", ["tape-core", "tape-numpy"]),
    "autograd": ("import autograd", ["autograd"]),
    "mygrad": ("import mygrad", ["mygrad"]),
    "torch": ("import torch", ["torch"]),
    "jax": ("import jax, jax.numpy", ["jax"]),
    "tensorflow": ("import tensorflow", ["tensorflow-cpu", "tensorflow"]),
}

TIMED = """
from time import perf_counter, process_time
wall, cpu = perf_counter(), process_time()
{}
print(perf_counter() - wall, process_time() - cpu)
"""

# In the Python of the library, which need not have anything else.
SIZED = """
import json, re, sys
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from urllib.parse import urlparse
from urllib.request import url2pathname
seen, waiting, total = set(), json.loads(sys.argv[1]), 0
while waiting:
    name = re.sub("[-_.]+", "-", waiting.pop()).lower()
    if name in seen:
        continue
    seen.add(name)
    try:
        found = distribution(name)
    except PackageNotFoundError:
        continue
    requirements = [r for r in found.requires or [] if "extra ==" not in r]
    waiting += [re.match("[A-Za-z0-9._-]+", r)[0] for r in requirements]
    where = json.loads(found.read_text("direct_url.json") or "{}")
    if where.get("dir_info", {}).get("editable"):
        files = (Path(url2pathname(urlparse(where["url"]).path)) / "src").rglob("*.py")
    else:
        files = [found.locate_file(f) for f in found.files or [] if f.suffix != ".pyc"]
    total += sum(f.stat().st_size for f in files if f.is_file())
print(total)
"""


def run(python: str, code: str, *arguments: str) -> str:
    # Not from source each time, as this variable would have it: what is installed has its bytecode beside it.
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    command = [python, "-c", code, *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()[-1]  # a library may greet


def import_times(pythons: dict[str, str], peers: list[str], rounds: int) -> dict[str, list[float]]:
    """Elapsed and processor seconds to import each, in fresh processes in turns; the minima.

    The first also waits for the disk and for other processes. A round before the first fills the file cache; what takes
    longer than two seconds has two rounds.
    """
    measured: dict[str, list[list[float]]] = {peer: [] for peer in peers if peer in LIBRARIES}
    for number in range(rounds + 1):
        for peer, samples in measured.items():
            if len(samples) >= 2 and samples[-1][0] > 2:
                continue
            begin = perf_counter()
            words = run(pythons[PEERS[peer].environment], TIMED.format(LIBRARIES[peer][0])).split()
            if number or perf_counter() - begin > 2:
                samples.append([float(word) for word in words])
    return {peer: [min(column) for column in zip(*times, strict=True)] for peer, times in measured.items()}


def sizes(pythons: dict[str, str], peers: list[str]) -> dict[str, int]:
    """Bytes of the installed files of each library and of all that it requires."""
    return {
        peer: int(run(pythons[PEERS[peer].environment], SIZED, json.dumps(LIBRARIES[peer][1])))
        for peer in peers
        if peer in LIBRARIES
    }
