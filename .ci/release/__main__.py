"""Try a release: what `nox -s release` runs.

    python .ci/release build             sdists and wheels, checked, in dist/; recipes for conda in conda/
    python .ci/release first-steps       what the README's readers type, in new environments
    python .ci/release upgrades          from the version before, and mixed versions
    python .ci/release pages             the code of each page, with what the page says to install
    python .ci/release lowest            with the lowest versions of other packages
    python .ci/release                   all of these

    python .ci/release set-version 0.2.0    not tried, but done: change the version everywhere

`--large NAME=FOLDER` names where PyTorch or JAX is unpacked; without it they are installed in each environment.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from pathlib import Path

import distributions
import documents
import environments
import lowest
import readers
import recipes

STAGES = ("build", "first-steps", "upgrades", "pages", "lowest")


def main() -> None:
    parser = argparse.ArgumentParser(prog="release", description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("stages", nargs="*", metavar="STAGE", help="those to run (default: all)")
    parser.add_argument("--large", action="append", default=[], metavar="NAME=FOLDER")
    parser.add_argument("--no-large", action="store_true", help="leave PyTorch and JAX out")
    parser.add_argument("--folder", type=Path, help="where environments are made, and stay (default: a temporary one)")
    options = parser.parse_args()
    stages = options.stages or list(STAGES)
    if stages[0] == "set-version":
        for path in distributions.set_version(distributions.ROOT, *stages[1:]):
            print(path.relative_to(distributions.ROOT))
        return
    if unknown := set(stages) - set(STAGES):
        parser.error(f"no stage is named {', '.join(sorted(unknown))}; there are {', '.join(STAGES)}")
    large = {name: Path(folder).resolve() for name, _, folder in (text.partition("=") for text in options.large)}

    dist = distributions.ROOT / "dist"
    if "build" in stages:
        print("== build", flush=True)
        shutil.rmtree(dist, ignore_errors=True)
        distributions.reproducible()
        distributions.build(dist)
        distributions.check(dist)
        distributions.check_forms()
        shutil.rmtree(distributions.ROOT / "conda", ignore_errors=True)
        recipes.write(distributions.ROOT / "conda", dist)
        recipes.check(distributions.ROOT / "conda")
        print(f"  sdists and wheels of {len(distributions.NAMES)} packages are in {dist}", flush=True)
    with tempfile.TemporaryDirectory(prefix="release-", ignore_cleanup_errors=True) as temporary:
        folder = (options.folder or Path(temporary)).resolve()
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        run(stages, folder, dist, large, with_large=not options.no_large)


def run(stages: list[str], folder: Path, dist: Path, large: dict[str, Path], *, with_large: bool) -> None:
    """Run the stages that install from an index."""
    version = distributions.version()
    dists, before = [dist], ""
    if "upgrades" in stages:
        checkout, before = distributions.earlier(folder / "earlier")
        names = ["tape-core", "tape-compile", "tape-numpy", "tape-nn", "tape-tf"]
        distributions.build(folder / "dist-before", root=checkout, names=names, wheels_only=True)
        dists.append(folder / "dist-before")
    (folder / "index").mkdir()
    distributions.write_index(folder / "index", *dists)
    with distributions.served(folder / "index") as url:
        index = environments.Index(url, folder, large)
        if "first-steps" in stages:
            print(f"== first steps, on Python {sys.version.split()[0]}", flush=True)
            readers.first_steps(folder / "readers", index, version, {}, large=with_large)
            present = environments.interpreters()
            for name, python in present.items():
                print(f"== first steps, on Python {name}, without PyTorch and JAX", flush=True)
                readers.first_steps(folder / name, index, version, {"python": python}, large=False)
            running = "{}.{}".format(*sys.version_info)
            missing = [name for name in environments.SUPPORTED if name not in present and name != running]
            if missing:
                print(f"  not on this machine: Python {', '.join(missing)}", flush=True)
        if "upgrades" in stages:
            print(f"== from {before} to {version}", flush=True)
            readers.upgrades(folder / "upgrades", index, version, before)
        if "pages" in stages:
            print("== pages, with what they say to install", flush=True)
            documents.documents(folder / "pages", index, version, large=with_large)
        if "lowest" in stages:
            print("== lowest versions of what the packages require", flush=True)
            lowest.light(folder / "lowest", index, version)
            if with_large:
                lowest.jax(folder / "lowest", index, version)


main()
