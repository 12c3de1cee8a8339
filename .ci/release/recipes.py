"""The recipes for conda-forge, written from the packages' pyproject.toml and the sdists that were built."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import Any

from distributions import PACKAGES, project, version

# What conda-forge calls otherwise than PyPI.
NAMES = {"flatbuffers": "python-flatbuffers", "opt-einsum": "opt_einsum", "torch": "pytorch"}
EXTRAS = {"safetensors[numpy]": "numpy"}
"""What extras of others bring; conda has no extras."""

RECIPE = """\
# Written by `nox -s release`. For conda-forge/staged-recipes: recipes/{name}/recipe.yaml; later for {name}-feedstock.
schema_version: 1

context:
  version: "{version}"
  python_min: "{python}"

package:
  name: {name}
  version: ${{{{ version }}}}

source:
  url: https://pypi.org/packages/source/{name[0]}/{name}/{module}-${{{{ version }}}}.tar.gz
  sha256: {sha256}

build:
  number: 0
  noarch: python
  script: ${{{{ PYTHON }}}} -m pip install . -vv --no-deps --no-build-isolation

requirements:
  host:
    - python ${{{{ python_min }}}}.*
    - pip
{host}
  run:
    - python >=${{{{ python_min }}}}
{run}
{constraints}
tests:
  - python:
      imports:
        - {module}
      pip_check: true
      python_version: ${{{{ python_min }}}}.*

about:
  homepage: https://pypi.org/project/{name}/
  summary: {summary}
  license: {license}
  license_file: LICENSE

extra:
  recipe-maintainers: [] # accounts on GitHub of those who look after the feedstock
"""


def write(target: Path, dist: Path) -> None:
    """Write a recipe for each package into a folder of its name."""
    for package in PACKAGES:
        sdist = dist / f"{package.name.replace('-', '_')}-{version()}.tar.gz"
        folder = target / package.name
        folder.mkdir(parents=True, exist_ok=True)
        text = recipe(package, hashlib.sha256(sdist.read_bytes()).hexdigest())
        (folder / "recipe.yaml").write_text(text, encoding="utf-8")


def check(target: Path) -> None:
    """Check that rattler-build, which builds conda-forge's packages, reads in each recipe what the package says."""
    import rattler_build  # not where the tests read this module

    for package in PACKAGES:
        text = (target / package.name / "recipe.yaml").read_text("utf-8")
        (rendered,) = rattler_build.Stage0Recipe.from_yaml(text).render()
        found = rendered.recipe.to_dict()
        table: dict[str, Any] = project(package)
        assert found["package"] == {"name": package.name, "version": version()}, found["package"]
        wanted = {f"python {table['requires-python']}", *requirements(table["dependencies"])}
        assert set(found["requirements"]["run"]) == wanted, (package.name, found["requirements"]["run"], wanted)
        assert found["build"]["noarch"] == "python"
        assert found["about"]["summary"] == table["description"].replace(": ", ", ")


def recipe(package: Path, sha256: str) -> str:
    """Return the recipe of one package."""
    table: dict[str, Any] = project(package)
    optional = [line for lines in table.get("optional-dependencies", {}).values() for line in lines]
    required = requirements(table["dependencies"])
    # conda has no extras: with what is installed, the versions have to fit.
    constraints = [line for line in requirements(optional) if line.split()[0] not in {r.split()[0] for r in required}]
    return RECIPE.format(
        name=package.name,
        module=package.name.replace("-", "_"),
        version=version(),
        python=table["requires-python"].removeprefix(">="),
        sha256=sha256,
        host=listed(requirements(["hatchling>=1.27"])),
        run=listed(required),
        constraints=f"  run_constraints:\n{listed(constraints)}\n" if constraints else "",
        summary=table["description"].replace(": ", ", "),  # a colon would make a mapping of it
        license=table["license"],
    )


def requirements(lines: list[str]) -> list[str]:
    """Return requirements of PyPI's packages as conda-forge's."""
    found = []
    for line in lines:
        match = re.fullmatch(r"([\w.-]+)(?:\[([\w,]+)\])?(.*)", line)
        assert match is not None
        assert ";" not in line, f"a recipe for all systems cannot say {line}"
        if match[2]:
            found.append(EXTRAS[f"{match[1]}[{match[2]}]"])
        found.append(f"{NAMES.get(match[1], match[1])} {match[3]}".strip())
    bounded = {line.split()[0] for line in found if " " in line}
    return sorted({line for line in found if " " in line or line not in bounded})


def listed(lines: list[str]) -> str:
    """Return lines of a list in YAML."""
    return "\n".join(f"    - {line}" for line in lines)
