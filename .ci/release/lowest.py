"""The lowest versions of other packages that pyproject.toml admits: a part of the tests runs with them."""

from __future__ import annotations

import re
from pathlib import Path

from distributions import NAMES, PACKAGES, ROOT, project, tool
from environments import Environment, Index, new

LARGE = {"torch", "jax"}
"""What is not tried here with all others. PyTorch's older CPU builds are on an index of their own."""

CHOSEN = [
    "packages/tape-core/tests/sparsity",
    "packages/tape-core/tests/ops/test_linalg.py",
    "packages/tape-numpy/tests",
    "packages/tape-nn/tests/test_checkpoints.py",
    "packages/tape-tf/tests/keras/test_keras_files.py",
    "packages/tape-tf/tests/test_summary.py",
]
# Which calls are computed in blocks, and how fast, is a matter of the NumPy that CI has.
LEFT_OUT = "not test_value_and_gradients"


def requirements(names: list[str], *, extras: bool = True) -> list[str]:
    """What packages require of others, with their extras."""
    found: set[str] = set()
    for package in PACKAGES:
        if package.name in names:
            table = project(package)
            lines = list(table["dependencies"])  # type: ignore[call-overload]
            if extras:
                lines += [line for extra in table.get("optional-dependencies", {}).values() for line in extra]  # type: ignore[attr-defined]
            found |= {line for line in lines if re.match(r"[\w.-]+", line)[0] not in NAMES}  # type: ignore[index]
    return sorted(found)


def install(environment: Environment, names: list[str], *tools: str) -> None:
    """Install packages with the lowest versions of what they require themselves; of the rest, the newest."""
    own = [f"{name}=={environment.version}" for name in names]
    index = ["--extra-index-url", environment.index.url, "--index-strategy", "unsafe-best-match"]
    command = [tool("uv"), "pip", "install", "--quiet", "--resolution", "lowest-direct", *index]
    environment.run([*command, "--python", environment.python, *own, *requirements(names), *tools])


def light(folder: Path, index: Index, version: str) -> None:
    """Try all that need neither PyTorch nor JAX."""
    names = [name for name in NAMES if not requires_large(name)]
    environment = new(folder / "light", index, version)
    install(environment, names)
    print(environment.run(["python", "-m", "pip", "list", "--format=freeze"]))
    environment.run(["python", str(ROOT / ".ci" / "smoke.py")])
    suite = ["pytest", "--pyargs", "tape_conformance", "--tape-backend=numpy", "--tape-quick", "-q"]
    environment.run([*suite, "-p", "no:cacheprovider", "-k", "gamma or solve or cholesky or bessel or multiply"])
    # The tests of the repository need a newer pytest than users of the suite do.
    tools = ["pytest>=9", "pytest-xdist", "hypothesis", "array-api-strict", "array-api-compat", "einops"]
    environment.run(["python", "-m", "pip", "install", "--quiet", *tools])
    chosen = [str(ROOT / path) for path in CHOSEN if (ROOT / path).exists()]
    environment.run(
        ["pytest", f"--rootdir={ROOT}", "-c", str(ROOT / "pyproject.toml"), "-q", "-n", "2", "-k", LEFT_OUT, *chosen]
    )


def jax(folder: Path, index: Index, version: str) -> None:
    """Try the lowest JAX."""
    environment = new(folder / "jax", index, version)
    install(environment, ["tape-core", "tape-compile", "tape-nn", "tape-jax", "tape-numpy"])
    programs = Path(__file__).parent / "programs"
    for arguments in (["gradient.py", "numpy"], ["xla.py"], ["layer.py"]):
        environment.run(["python", str(programs / arguments[0]), *arguments[1:]])
    environment.variables["TAPE_BACKEND"] = "jax"
    for arguments in (["gradient.py", "jax"], ["xla.py"], ["layer.py"]):
        environment.run(["python", str(programs / arguments[0]), *arguments[1:]])


def requires_large(name: str) -> bool:
    """Whether a package requires a library that is large."""
    lines = requirements([name], extras=False)
    return any(re.match(r"[\w.-]+", line)[0] in LARGE for line in lines)  # type: ignore[index]
