"""What readers of the README type, in new environments: installing, first programs, upgrading, mixing versions."""

from __future__ import annotations

from pathlib import Path

from distributions import ROOT
from environments import Environment, Index, new

PROGRAMS = Path(__file__).parent / "programs"
QUICK = "add/* multiply/value/*"


def program(name: str, *arguments: str) -> list[str]:
    """The command that runs one of the programs."""
    return ["python", str(PROGRAMS / f"{name}.py"), *arguments]


def conformance(backend: str) -> list[str]:
    """The command that runs the conformance suite on a few ops."""
    chosen = "(multiply or tanh or cumulative_sum) and not compose"
    suite = ["pytest", "--pyargs", "tape_conformance", f"--tape-backend={backend}", "--tape-quick", "-q", "-k", chosen]
    return [*suite, "-p", "no:cacheprovider"]


def first_steps(folder: Path, index: Index, version: str, python: dict[str, str], *, large: bool = True) -> None:
    """Install what the README names, each in a new environment, and run a small program."""

    def make(name: str, *libraries: str) -> Environment:
        return new(folder / name, index, version, large=libraries, **python)

    numpy = make("numpy")
    numpy.install("tape-core", "tape-numpy", "tape-nn")
    numpy.run(["python", "-m", "tape_core"], expect=[r"numpy", version.replace(".", r"\.")])
    numpy.run(program("gradient", "numpy"))
    numpy.run(program("layer"))
    # What is missing is named, and the command that is named brings it.
    numpy.run(program("tensorflow_names"), fails=True, expect=["tape_tf"])
    code = ["python", "-c", "import tape_core as tc; tc.special.gammainc(tc.asarray(1.0), tc.asarray(1.0))"]
    numpy.run(code, fails=True, expect=[r"pip install 'tape-core\[special\]'"])
    numpy.install("tape-core[special]")
    numpy.run(code)

    # Without a backend: it is said what to install. Then as it is said.
    tf = make("tf")
    tf.install("tape-tf")
    tf.run(program("tensorflow_names"), fails=True, expect=["no backend is installed", "pip install tape-numpy"])
    tf.install("tape-numpy")
    tf.run(program("tensorflow_names"))

    # Programs for autograd, with one import changed.
    autograd = make("autograd")
    autograd.install("tape-autograd")
    autograd.run(program("autograd_names"))
    stats = ["python", "-c", "import tape_autograd.scipy.stats as stats; print(stats.norm.logpdf(0.0))"]
    autograd.run(stats, fails=True, expect=[r"pip install 'tape-autograd\[scipy\]'"])
    autograd.install("tape-autograd[scipy]")
    autograd.run(stats, expect=["-0.9189"])

    # In an environment that is made from a clone, errors name its folders: there is no release yet, or an older one.
    clone = make("clone")
    clone.install(str(ROOT / "packages" / "tape-core"))
    printed = clone.run(program("gradient", "numpy"), fails=True, expect=["no backend is installed"])
    command = printed[printed.index("pip install") :].partition("\n")[0].split()
    assert command[-1] == str(ROOT / "packages" / "tape-numpy"), command
    clone.run(["python", "-m", *command, "--quiet"])
    clone.run(program("gradient", "numpy"))

    suite = make("conformance")
    suite.install("tape-conformance", "tape-numpy")
    suite.run(conformance("numpy"), expect=[r"\d+ passed"])
    if not large:
        return

    torch = make("torch", "torch")
    torch.install("tape-core", "tape-torch")
    torch.run(["python", "-m", "tape_core"], expect=["torch"])
    torch.run(program("gradient", "torch"))
    torch.run(program("xla"), fails=True, expect=["pip install tape-jax"])

    jax = make("jax", "jax")
    jax.install("tape-jax")
    jax.run(["python", "-m", "tape_core"], expect=["jax", "xla"])
    jax.run(program("gradient", "jax"))
    jax.run(program("xla"))
    jax.install("tape-numpy")
    jax.run(program("xla"))  # XLA, on NumPy's arrays


def upgrades(folder: Path, index: Index, version: str, before: str) -> None:
    """Upgrade from the version before, whole and in part."""
    whole = new(folder / "whole", index, before)
    whole.install("tape-numpy", "tape-nn", "tape-tf")
    assert set(whole.installed().values()) == {before}
    whole.run(program("layer"))
    whole.version = version
    whole.install("tape-numpy", "tape-nn", "tape-tf", upgrade=True)
    # Those that were not named, too: the packages require each other at the same version.
    found = whole.installed()
    assert set(found.values()) == {version}, found
    for name in ("layer", "tensorflow_names"):
        whole.run(program(name))
    whole.run(program("gradient", "numpy"))

    # In part: pip installs it, and says what does not fit; then Tape refuses.
    part = new(folder / "part", index, before)
    part.install("tape-numpy", "tape-nn")
    part.version = version
    command = ["python", "-m", "pip", "install", "--upgrade", "tape-core"]
    part.run(command, expect=[f"tape-numpy {before} requires tape-core<", f"tape-nn {before} requires tape-core<"])
    refuses(part, "tape_numpy", before)
    refuses(part, "tape_nn", before)
    part.install("tape-core", "tape-numpy", "tape-nn", upgrade=True)
    part.run(program("layer"))

    # Asked for two versions at once, pip finds nothing.
    part.version = ""
    command = ["python", "-m", "pip", "install", f"tape-core=={version}", f"tape-nn=={before}"]
    part.run(command, fails=True, expect=["conflicting dependencies"])

    # A plugin that is newer than tape-core.
    newer = new(folder / "newer", index, before)
    newer.install("tape-core", "tape-numpy")
    newer.version = version
    newer.run(["python", "-m", "pip", "install", "--quiet", "--no-deps", "--upgrade", "tape-numpy"])
    refuses(newer, "tape_numpy", version, core=before)


def refuses(environment: Environment, module: str, version: str, core: str = "") -> None:
    """Check that a package of one version and a tape-core of another do not run together, and say so."""
    backend = module == "tape_numpy"
    code = "import tape_core as tc; tc.asarray(1.0)" if backend else f"import {module}"
    named = rf"{module.replace('_', '.')} {version}"
    expected = [named, "pip install --upgrade tape-core", *([f"tape-core {core}"] if core else [])]
    environment.run(["python", "-c", code], fails=True, expect=expected)
