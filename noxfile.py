"""Everything that a contributor or CI runs.

    python -m nox               lint, types, docs, wheels, exported files, conformance, tests
    python -m nox -s release    build all packages, and try them as their users will, from an index
    python -m nox -s demo       train the digits example
    python -m nox -s examples   run all examples, or those that are named after --
    python -m nox -s bench      measure against the peers
    python -m nox -s site       look at the documentation in a browser that is installed
    python -m nox -s torch       all tests that depend on the library, on PyTorch
    python -m nox -s jax         all of the conformance suite on JAX, and all tests that depend on the library
    python -m nox -s dtensor     the ops of the conformance suite on arrays that 2 and 4 processes hold together
    python -m nox -s fuzz -- --minutes 30    random programs, faults and files, for half an hour each
    python -m nox -s libraries   compare 1,300 calls of other libraries on Tensors, and write docs/libraries.md
    python -m nox -s array_api -- PATH   run the standard's own suite from a checkout of data-apis/array-api-tests
    python -m nox -s guides -- PATH      run TensorFlow's guides from a checkout of tensorflow/docs
    python -m nox -s autograd -- PATH    run HIPS autograd's own tests from a checkout of HIPS/autograd
    python -m nox --list        all sessions

Arguments after `--` go to the tool: `python -m nox -s tests -- -k matmul`.
"""

from __future__ import annotations

import argparse
import os
import shutil
from pathlib import Path
from typing import Any

import nox

nox.needs_version = ">=2025.2.9"
nox.options.default_venv_backend = "uv|virtualenv"  # uv where there is one: it is faster
nox.options.reuse_venv = "yes"
nox.options.error_on_external_run = True

ROOT = Path(__file__).parent
BACKENDS = ["torch", "jax", "numpy"]
LIGHT = ["tape-core", "tape-compile", "tape-numpy", "tape-nn", "tape-tf", "tape-autograd", "tape-conformance"]
# What these bring is large: it is installed only where it is asked for, and unpacked once for all sessions.
LARGE = {"tape-torch": "torch", "tape-jax": "jax"}
PACKAGES = [*LIGHT, *LARGE]
WITH = {"numpy": LIGHT, "torch": [*LIGHT, "tape-torch"], "jax": [*LIGHT, "tape-jax"]}
AUTOGRAD = ["tape-core", "tape-compile", "tape-numpy", "tape-autograd"]
# The plugins that the conformance suite is run on, each in an environment of its own. tape-strict stands for a third
# party's: a package that is not in packages/.
PLUGINS = {
    "numpy": "tape-numpy",
    "torch": "tape-torch",
    "jax": "tape-jax",
    "strict": "../tests/plugins/tape-strict",
}
TESTING = [
    "pytest-xdist",
    "hypothesis",
    "array-api-strict",
    "array-api-compat",
    "array-api-extra",
    "einops",
    "ml_dtypes",
    "pillow",
    "h5py",  # the files of Keras
    "tensorboard",  # tf.summary
]
ALSO = {
    "torch": ["expecttest"],  # of PyTorch's own tests
    "jax": ["diffrax", "equinox", "optax"],  # libraries whose functions the tests call
}
LIBRARIES = [  # of docs/libraries.md
    *("scipy", "array-api-compat", "array-api-extra", "einops", "opt_einsum", "scikit-learn"),
    *("xarray", "pandas", "polars", "matplotlib"),
]
SITE = ["sphinx", "myst-nb", "furo", "sphinx-copybutton", "ipykernel", "scikit-learn", "scipy", "matplotlib"]
EXAMPLES = ["scikit-learn", "scipy", "matplotlib", "tqdm"]  # what docs/examples/*.py import

# The tests run in parallel processes, the benchmarks compare single threads, and for the small
# matrices of the demo a second thread costs more than it brings.
ONE_THREAD = {f"{library}_NUM_THREADS": "1" for library in ("OMP", "OPENBLAS", "MKL", "VECLIB_MAXIMUM")}

# Neighbours, which share fixtures and compiled functions, stay in one process; the slowest tests are listed.
IN_PARALLEL = ["-n", "auto", "--dist", "worksteal", "--durations", "25", "--durations-min", "1"]

# The folders that have tests marked `each_backend`, beside those of the backends' own packages.
MARKED = [
    "packages/tape-core/tests",
    "packages/tape-compile/tests",
    "packages/tape-nn/tests",
    "packages/tape-tf/tests",
    "packages/tape-autograd/tests",
]
ON_TORCH = [*MARKED, "packages/tape-torch/tests", "tests"]
# What of these runs on JAX in every run: each array of a new shape is compiled for, so that all take half an hour.
ON_JAX = [
    # Functions of SciPy's are computed on Tensors, and the two other backends show them.
    "--ignore=packages/tape-core/tests/scipy",
    "packages/tape-core/tests",
    "packages/tape-compile/tests",
    "packages/tape-nn/tests/test_transforms.py",
    "tests/test_one_program.py",
    "tests/fuzz/test_divided.py",
    "tests/fuzz/test_xla.py",
    "tests/test_examples.py::test_one_program_for_one_device_and_for_several[jax]",
    *(
        f"tests/test_docs.py::test_page[{page}]"
        for page in ("README.md", "docs/quickstart.md", "docs/jax.md", "docs/jax-functions.md")
    ),
]

# torch is installed with pip, not uv: its CPU build usually comes from where pip is configured to look.
WITH_PIP: Any = {"venv_backend": "virtualenv"}

# To compile all of torch, of which little is imported, takes longer than to install it.
INSTALL = ["--no-build-isolation", "--no-compile", "-c", "constraints.txt"]

os.environ.setdefault("PIP_DISABLE_PIP_VERSION_CHECK", "1")
# What is installed is compiled by the first process that imports it, and there are hundreds.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
# A backend chosen in the caller's shell must not change what is tested; the examples run on it.
CHOSEN = os.environ.pop("TAPE_BACKEND", None)


def unpack(session: nox.Session, library: str) -> Path:
    """Unpack PyTorch or JAX, once for all sessions; gives the folder."""
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pin = next(line for line in lines if line.startswith(f"{library}=="))
    # By this name tools know that it is not ours: Hypothesis reads the source of all else that is imported.
    unpacked = ROOT / ".nox" / pin.replace("==", "-") / "site-packages"
    if not (unpacked / "complete").exists():
        session.log(f"Installing {pin} for all sessions")
        session.install("--no-compile", "--upgrade", "--target", str(unpacked), pin)
        (unpacked / "complete").touch()
    return unpacked


def install_large(session: nox.Session, library: str) -> None:
    """Give the session PyTorch or JAX: they are large, and unpacked once for all sessions."""
    unpacked = unpack(session, library)
    where = session.run("python", "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", silent=True)
    (Path(str(where).strip()) / f"{library}.pth").write_text(f"{unpacked}\n")


def one_thread(session: nox.Session, backend: str) -> dict[str, str]:
    """Return the environment of tests on a backend: on JAX, what one process has compiled is there for the others."""
    if backend != "jax":
        return ONE_THREAD
    return {
        "NPROC": "1",
        "JAX_COMPILATION_CACHE_DIR": str(Path(session.create_tmp()).resolve() / "compiled"),
        # Compilations of milliseconds, too: there are thousands.
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
        **ONE_THREAD,
    }


def install(session: nox.Session, *tools: str, packages: list[str] = LIGHT) -> None:
    """Install packages of this repository, editable, and tools."""
    for name in packages:
        if name in LARGE:
            install_large(session, LARGE[name])
    session.log(f"Installing {', '.join([*packages, *tools])}")
    editable = [argument for name in packages for argument in ("-e", f"packages/{name}")]
    # Once here, not once for each package's isolated build.
    session.install("hatchling", "editables")
    session.install(*INSTALL, *editable, *tools)


@nox.session
def lint(session: nox.Session) -> None:
    """Check style and formatting."""
    session.install("ruff")
    session.run("ruff", "check", *session.posargs)
    session.run("ruff", "format", "--check")


@nox.session(**WITH_PIP)
def typecheck(session: nox.Session) -> None:
    """Check the types of the packages' sources, and of users' programs with mypy and pyright."""
    # basedpyright brings the program; the package `pyright` would download it.
    install(session, "mypy", "basedpyright", "pytest", "pytest-xdist", packages=PACKAGES)
    session.run("mypy", "--num-workers", "2", *session.posargs)
    session.run("pytest", "tests/typed", "-q", "-n", "auto", "--dist", "worksteal")


@nox.session(**WITH_PIP)
def docs(session: nox.Session) -> None:
    """Build the documentation; a warning is an error. (The tests run its code.)"""
    session.log(f"The documentation is in {build_site(session, *session.posargs)}/index.html")


def build_site(session: nox.Session, *options: str) -> str:
    """Build the documentation, which runs its notebooks, and check its links; gives the folder."""
    # Sphinx imports what the reference names, so the packages are there, too.
    install(session, *SITE, packages=PACKAGES)
    target = "docs/_build/html"
    session.run("sphinx-build", "-W", "--keep-going", "-q", "-j", "auto", "docs", target, *options, env=ONE_THREAD)
    session.run("python", "docs/check_site.py", target, "--links")
    return target


@nox.session(default=False, **WITH_PIP)
def site(session: nox.Session) -> None:
    """Look at the documentation in an installed Chromium or Chrome: widths, contrast, buttons, searches.

    Arguments go to docs/check_site.py: `python -m nox -s site -- --only gallery --pictures /tmp/pictures`.
    """
    target = build_site(session)
    session.install("playwright")
    session.run("python", "docs/check_site.py", target, *session.posargs)


@nox.session
def wheels(session: nox.Session) -> None:
    """Build wheels into dist/ and use them in an empty environment."""
    session.install("build", "hatchling", "virtualenv")
    dist = ROOT / "dist"
    shutil.rmtree(dist, ignore_errors=True)
    for name in PACKAGES:  # each wheel is built from the sdist, so both are tried; `nox -s release` tries more
        session.run("python", "-m", "build", "--no-isolation", "-o", "dist", f"packages/{name}")

    empty = Path(session.create_tmp()).resolve() / "empty"
    session.run("virtualenv", "--quiet", "--clear", str(empty))
    python = str(empty / ("Scripts/python.exe" if os.name == "nt" else "bin/python"))
    wheels = {wheel.name.split("-")[0]: str(wheel) for wheel in dist.glob("*.whl")}
    large = [wheels.pop("tape_torch"), wheels.pop("tape_jax")]
    session.run(python, "-m", "pip", "install", "--quiet", *wheels.values(), external=True)
    # Without PyTorch and JAX: a backend that cannot be used is in nobody's way.
    session.run(python, "-m", "pip", "install", "--quiet", "--no-deps", *large, external=True)
    session.chdir(empty)  # nothing may be imported from the checkout
    session.run(python, str(ROOT / ".ci" / "smoke.py"), external=True)
    session.run(python, "-m", "tape_core", external=True)


@nox.session
def exported(session: nox.Session) -> None:
    """Export compiled functions, and run the files in an environment that has NumPy alone."""
    install(session, "virtualenv", packages=["tape-core", "tape-compile", "tape-numpy", "tape-nn"])
    folder = Path(session.create_tmp()).resolve()
    alone, files = folder / "alone", folder / "files"
    session.run("python", ".ci/exported.py", "write", str(files), env=ONE_THREAD)
    session.run("virtualenv", "--quiet", str(alone))
    python = str(alone / ("Scripts/python.exe" if os.name == "nt" else "bin/python"))
    # The same NumPy: another one may round in other ways.
    version = session.run("python", "-c", "import numpy; print(numpy.__version__)", silent=True)
    session.run(python, "-m", "pip", "install", "--quiet", f"numpy=={str(version).strip()}", external=True)
    script = str(ROOT / ".ci" / "exported.py")
    session.chdir(files)
    session.run(python, script, "run", str(files), external=True, env={**ONE_THREAD, "PYTHONPATH": ""})


@nox.session(**WITH_PIP)
@nox.parametrize("backend", list(PLUGINS))
def conformance(session: nox.Session, backend: str) -> None:
    """Run the conformance suite on one backend, alone in its environment, and write its support matrix for the docs.

    On JAX, which compiles each op anew for each shape, a quick subset; `nox -s jax` runs all, and writes the matrix.
    """
    install(session, "pytest-xdist", packages=["tape-core", "tape-compile", "tape-conformance", PLUGINS[backend]])
    session.chdir(session.create_tmp())  # as a plugin's author runs it: from anywhere
    targets = {backend: backend}
    if backend == "torch":
        targets = {"torch": "torch:cpu"}
        found = session.run("python", "-c", "import torch; print(torch.cuda.is_available())", silent=True)
        if str(found).strip() == "True":
            targets["torch-cuda"] = "torch:cuda"
    # Derivatives of derivatives, compiled or not, what vmap makes of them, and patterns of sparsity are no matter of
    # the library: they compute on Tensors. Two backends show them, the slowest need not.
    tensors = ["compose", "second", "compiled-derivatives", "sparsity"]
    # Each of these ops is up to thousands of calls of the library, and they were three quarters of this session's time,
    # where calls are slow. They make the same calls for every sample: all samples are seen by the checks of values, and
    # by the two other backends, also in compiled functions; here other kinds of checks see those that broadcast.
    long = "(betainc or betaln or gammainc or stdtr)"
    seen = "(/samples or /value/ or /special or /large or (broadcast and not /compiled/))"
    chosen = " and ".join([*(f"not /{kind}/" for kind in tensors), f"not ({long} and not {seen})"])
    fewer = ["-k", chosen] if backend == "strict" else []
    for name, target in targets.items():
        report = ["--tape-quick"] if backend == "jax" else [f"--tape-report={ROOT / 'docs' / 'support' / name}"]
        session.run(
            "pytest",
            *("--pyargs", "tape_conformance", f"--tape-backend={target}", *fewer),
            *(session.posargs or [*IN_PARALLEL, "-q", *report]),
            env=one_thread(session, backend),
        )


# Last of the default sessions: its closing line ends the output.
@nox.session(**WITH_PIP)
@nox.parametrize("backend", BACKENDS)
def tests(session: nox.Session, backend: str) -> None:
    """Run all tests, and the code in the docstrings and the documentation; on torch those marked `each_backend`.

    On torch and JAX some of these; `nox -s torch` and `nox -s jax` run all. The tests on NumPy run where neither is
    installed.
    """
    install(session, *TESTING, *EXAMPLES, *ALSO.get(backend, []), packages=WITH[backend])
    chosen = {
        "torch": [*ON_TORCH, "-m", "each_backend and not long_on_torch"],
        "jax": [*ON_JAX, "packages/tape-jax/tests", "-m", "each_backend and not long_on_jax"],
        "numpy": [],
    }
    session.run(
        "pytest",
        *(session.posargs or [*IN_PARALLEL, *chosen[backend]]),
        env={"TAPE_BACKEND": backend, **one_thread(session, backend)},
    )


@nox.session(default=False, **WITH_PIP)
def torch(session: nox.Session) -> None:
    """Run all tests marked `each_backend` on PyTorch."""
    install(session, *TESTING, *EXAMPLES, *ALSO["torch"], packages=WITH["torch"])
    chosen = {"TAPE_BACKEND": "torch", **ONE_THREAD}
    session.run("pytest", *ON_TORCH, "-m", "each_backend", *IN_PARALLEL, *session.posargs, env=chosen)


@nox.session(default=False, **WITH_PIP)
def jax(session: nox.Session) -> None:
    """Run the whole conformance suite on JAX, which writes its support matrix, and all tests marked `each_backend`."""
    install(session, *TESTING, *EXAMPLES, *ALSO["jax"], packages=WITH["jax"])
    environment = one_thread(session, "jax")
    report = f"--tape-report={ROOT / 'docs' / 'support' / 'jax'}"
    suite = ["--pyargs", "tape_conformance", "--tape-backend=jax"]
    session.run("pytest", *suite, *IN_PARALLEL, "-q", report, *session.posargs, env=environment)
    folders = [*MARKED, "packages/tape-jax/tests", "tests"]
    selected = {"TAPE_BACKEND": "jax", **environment}
    session.run("pytest", *folders, "-m", "each_backend", *IN_PARALLEL, *session.posargs, env=selected)


@nox.session(default=False, **WITH_PIP)
def dtensor(session: nox.Session) -> None:
    """Compare all ops on PyTorch's DTensors, in 2 and in 4 gloo processes, with one process: values and derivatives."""
    install(session, "pytest-xdist", packages=["tape-core", "tape-compile", "tape-conformance", "tape-torch"])
    session.chdir(session.create_tmp())
    for processes in (2, 4):
        suite = ["--pyargs", "tape_conformance", f"--tape-backend=torch:dtensor:{processes}"]
        # Each process of pytest has so many processes of its own.
        parallel = ["-n", str(max(1, (os.cpu_count() or 1) // processes)), "--dist", "worksteal"]
        session.run("pytest", *suite, *(session.posargs or [*parallel, "-q"]), env=ONE_THREAD)


@nox.session(default=False, **WITH_PIP)
def fuzz(session: nox.Session) -> None:
    """Search with the fuzzers of tests/fuzz for as many minutes each as `-- --minutes N` says, from `--seed N`.

    Other arguments go to pytest: `python -m nox -s fuzz -- --minutes 30 -k compositions`.
    """
    parser = argparse.ArgumentParser(prog="nox -s fuzz --")
    parser.add_argument("--minutes", type=float, default=5.0, help="for each search (default: 5)")
    parser.add_argument("--seed", type=int, help="of the first programs; by default another one in each run")
    options, others = parser.parse_known_args(session.posargs)
    install(session, *TESTING, *EXAMPLES, packages=PACKAGES)  # programs use PyTorch and JAX, where they are there
    chosen = {"TAPE_FUZZ_MINUTES": str(options.minutes), "TAPE_FUZZ_SEED": str(options.seed or "")}
    how = ["-n", "auto", "-o", "faulthandler_timeout=0"]
    session.run("pytest", "tests/fuzz", *how, *others, env={**ONE_THREAD, **chosen})


@nox.session(default=False)
def libraries(session: nox.Session) -> None:
    """Find out which functions of other libraries take Tensors and are differentiable, and write docs/libraries.md."""
    install(session, *LIBRARIES)
    session.run("python", "docs/generate/libraries", *session.posargs, env=ONE_THREAD)


@nox.session(default=False, **WITH_PIP)
@nox.parametrize("backend", BACKENDS)
def array_api(session: nox.Session, backend: str) -> None:
    """Run data-apis/array-api-tests, of which a checkout with its submodule is named after `--`."""
    if not session.posargs:
        session.error("name a checkout: nox -s array_api -- PATH; git clone --recursive data-apis/array-api-tests")
    checkout, *options = session.posargs
    expected = ROOT / "tests" / "array_api" / f"{backend}.txt"
    tools = ["pytest", "pytest-xdist", "pytest-json-report", "hypothesis", "ndindex"]
    install(session, *tools, packages=WITH[backend])
    session.chdir(checkout)
    session.run(
        "pytest",
        "array_api_tests",
        *("-n", "auto", "-q", "-p", "no:cacheprovider", "--disable-warnings"),
        *("--xfails-file", str(expected)),
        # The first call for a shape is compiled, which takes longer than the deadline of an example.
        *(["--disable-deadline"] if backend == "jax" else []),
        *(options or ["--max-examples", "8"]),
        env={
            "ARRAY_API_TESTS_MODULE": "tape_core",
            "ARRAY_API_TESTS_VERSION": "2025.12",
            "TAPE_BACKEND": backend,
            **one_thread(session, backend),
        },
    )


@nox.session(default=False, **WITH_PIP)
@nox.parametrize("backend", BACKENDS)
def guides(session: nox.Session, backend: str) -> None:
    """Run the code of TensorFlow's guides, of which a checkout of tensorflow/docs is named after `--`."""
    if not session.posargs:
        session.error("name a checkout: nox -s guides -- PATH; git clone https://github.com/tensorflow/docs")
    checkout, *options = session.posargs
    install(session, "pytest", "matplotlib", "pandas<3", packages=WITH[backend])
    session.run(
        "pytest",
        "packages/tape-tf/tests/test_guides.py",
        "packages/tape-tf/tests/test_guides_on_data.py",
        *options,
        env={"TAPE_GUIDES": str(Path(checkout).resolve()), "TAPE_BACKEND": backend, **ONE_THREAD},
    )


@nox.session(default=False, **WITH_PIP)
def release(session: nox.Session) -> None:
    """Build and check all packages, and try them from an index of this machine, in environments as users make them.

    `python -m nox -s release -- build first-steps` runs some of the stages; .ci/release lists them.
    """
    session.install(
        "build",
        "hatchling",
        "virtualenv",
        "twine",
        "check-wheel-contents",
        "pyroma",
        "uv",
        "check-jsonschema",
        "zizmor",
        "py-rattler-build",
    )
    large = [] if "--no-large" in session.posargs else LARGE.values()
    where = [f"--large={library}={unpack(session, library)}" for library in large]
    session.run("python", ".ci/release", *where, *session.posargs)


@nox.session(default=False)
def autograd(session: nox.Session) -> None:
    """Run the tests of HIPS/autograd on tape-autograd, of which a checkout is named after `--`."""
    if not session.posargs:
        session.error("name a checkout: nox -s autograd -- PATH; git clone https://github.com/HIPS/autograd")
    checkout, *options = session.posargs
    install(session, "pytest", "pytest-xdist", "scipy", "xarray", packages=AUTOGRAD)
    session.chdir(Path(checkout) / "tests")
    session.run(
        "pytest",
        *("-c", os.devnull, "--rootdir", ".", "-p", "hips_suite", "-p", "no:cacheprovider", "-q", "-n", "auto"),
        *options,
        env={"PYTHONPATH": os.pathsep.join([str(ROOT / "tests" / "autograd_suite"), "."]), **ONE_THREAD},
    )


@nox.session(default=False)
def demo(session: nox.Session) -> None:
    """Train a network on handwritten digits: docs/examples/digits.py."""
    install(session, *EXAMPLES, packages=["tape-core", "tape-compile", "tape-numpy", "tape-nn"])
    session.run("python", "docs/examples/digits.py", *session.posargs, env=ONE_THREAD)


@nox.session(default=False, **WITH_PIP)
def examples(session: nox.Session) -> None:
    """Run the programs of docs/examples that are named after `--`, or all; on NumPy, or what TAPE_BACKEND says.

    Options go to each: `python -m nox -s examples -- pendulum transformer --seed 1`.
    """
    known = sorted(path.stem for path in (ROOT / "docs" / "examples").glob("*.py"))
    names = [name for name in session.posargs if name in known]
    options = [argument for argument in session.posargs if argument not in known]
    if options and not options[0].startswith("-"):
        session.error(f"{options[0]!r} is no example; there are {', '.join(known)}")
    selected = [f"tape-{name}" for name in ("torch", "jax") if (CHOSEN or "").startswith(name)]
    install(session, *EXAMPLES, packages=["tape-core", "tape-compile", "tape-numpy", "tape-nn", *selected])
    for name in names or known:
        session.run("python", f"docs/examples/{name}.py", *options, env={**ONE_THREAD, "TAPE_BACKEND": CHOSEN})


@nox.session(default=False, **WITH_PIP)
def bench(session: nox.Session) -> None:
    """Measure against NumPy by hand, PyTorch, HIPS autograd, MyGrad, JAX and TensorFlow, each in its own environment.

    `python -m nox -s bench -- --docs` also writes the documentation's page.
    """
    session.log("The first run installs torch, JAX and TensorFlow, which takes minutes")
    install(session, "matplotlib", packages=WITH["torch"])
    peers = Path(session.virtualenv.location).resolve() / "peers"
    session.run("python", "benchmarks/environments.py", str(peers))
    session.run("python", "benchmarks/run.py", "--environments", str(peers), *session.posargs, env=ONE_THREAD)
