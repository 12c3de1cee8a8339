"""Write what is generated of the documentation: `python docs/generate`. With `--check` only say what is out of date."""

from __future__ import annotations

import sys
from pathlib import Path

import calls
import facts
import house
import reference
import rules
import signatures

DOCS = Path(__file__).parents[1]
CORE = DOCS.parent / "packages" / "tape-core" / "src" / "tape_core"
STUBS = DOCS.parent / "packages" / "tape-tf" / "src" / "tape_tf" / "signatures"


def generated() -> dict[Path, str]:
    """The files with what they should hold."""
    return {
        DOCS / "rules.md": rules.page(),
        DOCS / "house.md": house.page(),
        DOCS / "_static" / "house.svg": house.svg(),
        DOCS / "_static" / "calls-of-a-block.svg": calls.svg(calls.recorded()),
        DOCS / "_static" / "calls-of-a-gradient.svg": calls.svg(calls.differentiated()),
        **{DOCS / path: text for path, text in reference.pages().items()},
        CORE / "engine" / "facts.py": facts.source(),
        **{STUBS / path: text for path, text in signatures.stubs().items()},
    }


def main() -> int:
    stale = [
        (path, text)
        for path, text in generated().items()
        if not path.exists() or path.read_text(encoding="utf-8") != text
    ]
    for path, text in stale:
        if "--check" not in sys.argv:
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, encoding="utf-8")
        print(f"{path.relative_to(DOCS.parent)} is {'out of date' if '--check' in sys.argv else 'written'}")
    return 1 if stale and "--check" in sys.argv else 0


if __name__ == "__main__":
    sys.exit(main())
