"""Look at the built site as its readers do: links and anchors always, all else in a browser.

    python docs/check_site.py FOLDER             all checks
    python docs/check_site.py FOLDER --links     links and anchors alone, which need no browser
    python docs/check_site.py FOLDER --only gallery --pictures OUT    some pages, and a picture of each

FOLDER is what `sphinx-build` has made; `python -m nox -s site` makes it first. The browser is an installed Chromium or
Chrome, or the one that the environment variable CHROME names. Without one the script says so and does the rest;
with `--browser` that is an error.
"""

from __future__ import annotations

import argparse
import ast
import functools
import http.server
import os
import re
import shutil
import sys
import threading
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

if TYPE_CHECKING:
    from playwright.sync_api import Page

WIDTHS = (390, 820, 1440)
THEMES = ("light", "dark")
INSPECT = (Path(__file__).parent / "check_site.js").read_text(encoding="utf-8")

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome", "msedge")
PLACES = (
    "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
    "/Applications/Chromium.app/Contents/MacOS/Chromium",
    "C:/Program Files/Google/Chrome/Application/chrome.exe",
)
QUIET = ["--disable-gpu", "--no-first-run", "--disable-background-networking", "--disable-sync", "--disable-quic"]

NOT_IN_THE_NAVIGATION = {"genindex.html", "py-modindex.html", "search.html"}
"""Pages that Sphinx adds."""

PYTHON = {"python", "python3", "py", "pycon", "ipython", "ipython3", "default"}
COMMANDS = re.compile(
    r"python\d?|pip|nox|uv|git|cd|export|torchrun|conda|pytest|ruff|mypy|bash|sh|open|srun|salloc|docker"
)


class _Links(HTMLParser):
    """What a page links to and shows, and what on it can be linked to."""

    def __init__(self) -> None:
        super().__init__()
        self.links: list[str] = []
        self.anchors = {"", "top"}

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        self.anchors.update(value for key in ("id", "name") if (value := found.get(key)))
        for key in ("href", "src"):
            if value := found.get(key):
                self.links.append(value)


def pages(site: Path) -> list[str]:
    """The pages of a site, as paths in it."""
    return sorted(path.relative_to(site).as_posix() for path in site.rglob("*.html") if "_static" not in path.parts)


def dead_links(site: Path) -> list[str]:
    """Say of each link within the site that leads to no file, or to no place in it, on which page it is."""
    parsed: dict[str, _Links] = {}
    for page in pages(site):
        parsed[page] = _Links()
        parsed[page].feed((site / page).read_text(encoding="utf-8"))
    problems = []
    for page, found in parsed.items():
        for link in dict.fromkeys(found.links):
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            path = (site / page).parent / unquote(parts.path) if parts.path else site / page
            target = Path(os.path.normpath(path))
            if not target.is_file():
                problems.append(f"{page}: {link} leads to no file")
                continue
            there = parsed.get(target.relative_to(site).as_posix()) if target.is_relative_to(site) else None
            if there is not None and unquote(parts.fragment) not in there.anchors:
                problems.append(f"{page}: {link} leads to no place on that page")
    return problems


def outside_the_navigation(site: Path) -> list[str]:
    """Say which pages the navigation of the front page does not list."""
    text = (site / "index.html").read_text(encoding="utf-8")
    tree = text.partition('class="sidebar-tree"')[2].partition("</aside>")[0]
    listed = set(re.findall(r'href="([^"#]+)', tree))
    missing = set(pages(site)) - listed - NOT_IN_THE_NAVIGATION - {"index.html"}
    return [f"{page}: not in the navigation" for page in sorted(missing)]


def does_not_run(language: str, text: str) -> str | None:
    """Say why what a copy button of a block gives would not run; None if it would."""
    if re.search(r"^(>>> |\.\.\. |\$ |In \[\d)", text, re.MULTILINE):
        return "copies prompts"
    if language in PYTHON:
        try:
            ast.parse(text)
        except SyntaxError as error:
            return f"copies what is no Python: line {error.lineno}, {error.msg}"
    if language in {"console", "bash", "shell", "sh"}:
        continued = False
        for line in text.splitlines():
            command = re.sub(r"^(\w+=\S* )+", "", line)
            known = COMMANDS.match(command) or not command.strip() or command.lstrip().startswith("#")
            if not (known or continued or re.fullmatch(r"\w+=\S*", line)):
                return f"copies what looks like no command: {line!r}"
            continued = line.endswith("\\")
    if language == "text":
        return "has a button, but nothing that runs"
    return None


def find_browser() -> str | None:
    """The path of an installed Chromium or Chrome."""
    named = [os.environ.get("CHROME"), *map(shutil.which, BROWSERS), *PLACES]
    return next((path for path in named if path and Path(path).is_file()), None)


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        pass


class Looker:
    """One browser page that goes through the site, and what is wrong there."""

    def __init__(self, page: Page, base: str, theme: str) -> None:
        self.page, self.base, self.theme = page, base, theme
        self.problems: dict[str, None] = {}

    def say(self, where: str, problem: str) -> None:
        """Note a problem, once."""
        self.problems[f"{where}: {problem}"] = None

    def look(self, name: str, pictures: Path | None) -> None:
        """Look at a page at each width, and press its buttons once."""
        page = self.page
        page.set_viewport_size({"width": WIDTHS[0], "height": 900})
        page.goto(self.base + name)
        for width in WIDTHS:
            page.set_viewport_size({"width": width, "height": 900})
            page.evaluate(PAINTED)
            for problem in page.evaluate(INSPECT):
                self.say(f"{name} ({width}, {self.theme})", problem)
            if pictures:
                stem = name.removesuffix(".html").replace("/", "-")
                page.screenshot(path=pictures / f"{stem}-{width}-{self.theme}.png", full_page=True)
        if self.theme == THEMES[0]:
            self.copy(name)
            self.search_tables(name)

    def copy(self, name: str) -> None:
        """Press all copy buttons."""
        for language, text in self.page.evaluate(COPY):
            if problem := does_not_run(language, text):
                self.say(name, f"a copy button of {language} {problem}: {text[:60]!r}")

    def search_tables(self, name: str) -> None:
        """Use the search fields of tables by keyboard."""
        for box in self.page.locator(".table-search").all():
            field, status = box.locator("input[type=search]"), box.locator("[aria-live]")
            before = status.inner_text()
            field.focus()
            self.page.keyboard.type("no such row")
            if "No row" not in status.inner_text():
                self.say(name, f"a table's search does not say that nothing matches, but {status.inner_text()!r}")
            self.page.keyboard.press("Escape")
            if status.inner_text() != before:
                self.say(name, "Escape does not clear a table's search")

    def search(self) -> None:
        """Use the search of the site."""
        page = self.page
        page.set_viewport_size({"width": WIDTHS[-1], "height": 900})
        for words, title in SEARCHES.items():
            page.goto(f"{self.base}index.html")
            page.locator(".sidebar-search").fill(words)
            page.keyboard.press("Enter")
            page.locator("#search-results h2").first.wait_for()
            page.wait_for_function(SEARCHED)
            found = page.locator("#search-results ul.search li a").all_inner_texts()
            if title is None and found:
                self.say("search.html", f"{words!r} finds {found[:3]}")
            if title is not None and not any([title in text for text in found[:10]]):
                self.say("search.html", f"{words!r} does not find {title!r} among the first ten: {found[:10]}")
        if "did not match any documents" not in page.locator("#search-results").inner_text():
            self.say("search.html", "does not say that nothing was found")


SEARCHES = {"quickstart": "Quickstart", "solve": "solve", "vmap": "vmap", "checkpoint": "checkpoint", "zzqqx": None}
"""What is searched for, and what is found; the last nowhere."""

PAINTED = "() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"
"""Wait until what the page's scripts do on a new size is done."""

SEARCHED = "() => /did not match|finished/.test(document.querySelector('#search-results')?.textContent ?? '')"
"""Whether the search has come to its end; what Sphinx then says begins so."""

COPY = """() => [...document.querySelectorAll("button.copybtn")].map((button) => {
  let text = "";
  const listen = (event) => { text = event.target.value ?? String(getSelection()); };
  document.addEventListener("copy", listen, { once: true });
  button.click();
  document.removeEventListener("copy", listen);
  const language = /highlight-(\\w+)/.exec(button.closest("[class*=highlight-]")?.className ?? "")?.[1] ?? "";
  return [language, text];
})"""


def look_at(site: Path, names: list[str], pictures: Path | None, browser: str) -> Iterator[str]:
    """Say what is wrong with the pages in a browser."""
    from playwright.sync_api import sync_playwright

    handler = functools.partial(_Quiet, directory=str(site))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    # Chromium's sandbox refuses to be started by root, which containers are.
    root = ["--no-sandbox"] if getattr(os, "geteuid", lambda: 1)() == 0 else []
    try:
        with sync_playwright() as playwright:
            opened = playwright.chromium.launch(executable_path=browser, args=[*QUIET, *root])
            for theme in THEMES:
                context = opened.new_context(color_scheme=theme, reduced_motion="reduce")
                page = context.new_page()
                page.set_default_timeout(120_000)  # ms: a machine may have much else to do
                looker = Looker(page, f"http://127.0.0.1:{server.server_port}/", theme)
                page.on("pageerror", lambda error, looker=looker: looker.say(looker.page.url, f"script: {error}"))
                for k, name in enumerate(names, 1):
                    if sys.stderr.isatty() or k == len(names):
                        print(
                            f"\r{theme}: page {k} of {len(names)}", end="" if k < len(names) else "\n", file=sys.stderr
                        )
                    looker.look(name, pictures)
                if theme == THEMES[0]:
                    looker.search()
                yield from looker.problems
                context.close()
            opened.close()
    finally:
        server.shutdown()


def main() -> int:
    """Check, print what is wrong, and return the status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("site", type=Path)
    parser.add_argument("--links", action="store_true", help="links and anchors alone")
    parser.add_argument("--browser", action="store_true", help="that no browser is found is an error")
    parser.add_argument("--only", nargs="*", default=[], help="what the names of the pages begin with")
    parser.add_argument("--pictures", type=Path, help="a folder for a picture of each page, at each width and theme")
    options = parser.parse_args()
    site = options.site.resolve()
    if not (site / "index.html").is_file():
        parser.error(f"{site} has no index.html: build the site first, python -m nox -s docs")
    problems = [*dead_links(site), *outside_the_navigation(site)]
    names = [page for page in pages(site) if page.startswith(tuple(options.only) or "")]
    browser = None if options.links else find_browser()
    if browser is not None:
        if options.pictures:
            options.pictures.mkdir(parents=True, exist_ok=True)
        problems += look_at(site, names, options.pictures, browser)
    elif not options.links:
        print("No Chromium or Chrome was found (CHROME may name one): only links and anchors are checked.")
        if options.browser:
            return 1
    for problem in problems:
        print(problem)
    looked = "links and anchors" if browser is None else f"{len(names)} pages in {browser}"
    print(f"{len(problems)} problems; checked: {looked}")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
