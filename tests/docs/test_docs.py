"""The documentation says what is: it builds strictly, asks no other host for anything, its code
runs, and the names and keys it uses exist.
"""

from __future__ import annotations

import html
import importlib
import json
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest
from data_paths import ROOT
from prose import RUN, Reader, blocks, options, verbs

import thetahat

DOCS = ROOT / "docs"
PAGES = sorted(DOCS.rglob("*.md"))
SOURCE = {page: page.read_text(encoding="utf-8") for page in PAGES}
WAITING: tuple[str, ...] = ()
FETCHED = {
    "script": "src",
    "link": "href",
    "img": "src",
    "iframe": "src",
    "source": "src",
    "video": "src",
    "audio": "src",
    "object": "data",
}


def named(page: Path) -> str:
    return page.relative_to(DOCS).as_posix()


# -- code ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "page",
    [page for page in PAGES if any(block.language in RUN for block in blocks(SOURCE[page]))],
    ids=named,
)
def test_a_reader_can_work_through_the_page(page: Path, tmp_path: Path) -> None:
    reader = Reader(page, tmp_path, waiting=WAITING)
    reader.work_through()
    if reader.left_out:
        pytest.skip("; ".join(reader.left_out))


def exists(name: str) -> bool:
    """Whether a dotted name leads to something."""
    parts = name.split(".")
    for split in range(len(parts), 0, -1):
        try:
            found = importlib.import_module(".".join(parts[:split]))
        except ModuleNotFoundError:
            continue
        for part in parts[split:]:
            if not hasattr(found, part):
                return False
            found = getattr(found, part)
        return True
    return False


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_names_in_the_text_exist(page: Path) -> None:
    text = SOURCE[page]
    missing = [name for name in re.findall(r"`(thetahat(?:\.\w+)+)", text) if not exists(name)]
    missing += [
        f"th.{name}"
        for name in re.findall(r"`th\.(\w+)", text)
        if not hasattr(thetahat, name) and f"th.{name}" not in WAITING
    ]
    assert not missing, f"{named(page)} names what does not exist: {', '.join(missing)}"


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_options_in_the_text_exist(page: Path) -> None:
    known = {"--help", "--install-completion", "--version"} | options()
    prose = re.sub(r"^```.*?^```$", "", SOURCE[page], flags=re.MULTILINE | re.DOTALL)
    used = {
        option
        for code in re.findall(r"`([^`\n]+)`", prose)
        for option in re.findall(r"(?<![\w-])--[a-z][a-z-]+", code)
    }
    assert used <= known, (
        f"{named(page)} names options that no verb has: {', '.join(sorted(used - known))}"
    )


def test_examples_named_are_there() -> None:
    for page, text in SOURCE.items():
        for name in re.findall(r"examples/(\w+\.py)", text):
            assert (ROOT / "examples" / name).is_file(), f"{named(page)} names examples/{name}"


def test_keys_cited_are_explained() -> None:
    known = set(re.findall(r"^\| \[(\w+)\]", SOURCE[DOCS / "references.md"], re.MULTILINE))
    for page, text in SOURCE.items():
        used = set(re.findall(r"\[([A-Z]\w+?\d{4}|Kolathaya)\]", text))
        assert used <= known, f"{named(page)} cites {used - known}"


def test_every_field_of_an_estimate_is_explained() -> None:
    """The schema is the authority; `findings` and the like name their own fields, so every word
    must stand in backticks somewhere.
    """

    def fields(schema: dict) -> set[str]:
        found = set(schema.get("properties", {}))
        below = [*schema.get("properties", {}).values(), *schema.get("anyOf", [])]
        if isinstance(schema.get("items"), dict):
            below.append(schema["items"])
        return found.union(*map(fields, below))

    page = SOURCE[DOCS / "reference" / "files.md"]
    explained = set(
        re.findall(r"`(\w+)`", page[page.index("## estimate.json") : page.index("## drive.json")])
    )
    schema = json.loads(
        (ROOT / "src" / "thetahat" / "schemas" / "estimate.json").read_text(encoding="utf-8")
    )
    assert fields(schema) - explained == set()


# -- pages -----------------------------------------------------------------------------------------


class Elements(HTMLParser):
    """What a page fetches, links to, and can be linked at."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.fetched: list[str] = []
        self.links: list[str] = []
        self.ids: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        given = dict(attributes)
        if FETCHED.get(tag) in given:
            self.fetched.append(given[FETCHED[tag]] or "")
        if tag == "a" and given.get("href"):
            self.links.append(given["href"] or "")
        self.ids |= {given[name] for name in ("id", "name") if given.get(name)}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The documentation, built strictly: a broken link, anchor or reference is an error."""
    pytest.importorskip("mkdocs", reason="mkdocs is not installed (pip install -e '.[dev]')")
    folder = tmp_path_factory.mktemp(
        "site"
    )  # no --quiet below: MkDocs would not count warnings then
    command = [
        sys.executable,
        "-m",
        "mkdocs",
        "build",
        "--strict",
        "--config-file",
        ROOT / "mkdocs.yml",
        "--site-dir",
        folder,
    ]
    built = subprocess.run(
        command, capture_output=True, text=True, cwd=ROOT, check=False, timeout=120
    )
    assert built.returncode == 0, built.stdout + built.stderr
    return folder


def test_no_page_asks_another_host(site: Path) -> None:
    for page in site.rglob("*.html"):
        text = page.read_text(encoding="utf-8")
        for address in Elements(text).fetched:
            assert not re.match(r"(?:\w+:)?//", address), f"{page.name} fetches {address}"
        assert not re.search(r"url\(['\"]?(?:https?:)?//", text)
    for style in site.rglob("*.css"):
        assert not re.search(
            r"(?:url\(|@import\s*)['\"]?(?:https?:)?//", style.read_text(encoding="utf-8")
        ), style.name


def test_links_lead_somewhere(site: Path) -> None:
    """Those that the hooks make, too, of which MkDocs does not know."""
    pages = {
        page: Elements(page.read_text(encoding="utf-8"))
        for page in site.rglob("*.html")
        if page.name != "404.html"
    }
    for page, elements in pages.items():
        for link in elements.links:
            if re.match(r"\w+:", link):
                continue
            path, _, anchor = html.unescape(link).partition("#")
            target = (page.parent / path).resolve() if path else page
            if target.is_dir():
                target /= "index.html"
            assert target.is_file(), f"{page.relative_to(site)} links to {link}"
            assert not anchor or target not in pages or anchor in pages[target].ids, (
                f"{page.relative_to(site)} links to {link}"
            )


def test_equations_became_mathml(site: Path) -> None:
    theory = (site / "theory" / "paper.html").read_text(encoding="utf-8")
    written = SOURCE[DOCS / "theory" / "paper.md"].count("$$") // 2
    assert theory.count('display="block"') == written > 10
    for page in site.rglob("*.html"):
        assert "arithmatex" not in page.read_text(encoding="utf-8"), (
            f"{page.name} holds an equation that was not converted"
        )


def test_every_public_name_has_an_anchor(site: Path) -> None:
    ids: list[str] = []
    for page in (site / "reference").glob("*.html"):
        ids += re.findall(r'<h3 id="(th[\w.]+)"', page.read_text(encoding="utf-8"))
    names = [f"th.{name}" for name in thetahat.__all__ if name != "__version__"]
    names += [f"{home}.{name}" for name, home in thetahat.MOVED.items()]
    for name in names:
        assert ids.count(name) == 1, f"{name} is documented {ids.count(name)} times"


def test_every_verb_is_in_the_reference(site: Path) -> None:
    page = (site / "reference" / "command-line.html").read_text(encoding="utf-8")
    assert {
        name.partition("-")[0] for name in re.findall(r'<h2 id="([\w-]+)"', page)
    } == verbs()  # watch-study is of watch
    for option in ("--out", "--gravity", "--prior-weight", "--seed", "--criterion"):
        assert f"<code>{option}</code>" in page


def test_listings_are_the_source(site: Path) -> None:
    """Every `Code:` line of the theory became a listing, with the code as it stands."""
    for name in ("paper", "beyond"):
        lines = re.findall(r"^Code: (.+)\.$", SOURCE[DOCS / "theory" / f"{name}.md"], re.MULTILINE)
        asked = [code for line in lines for code in re.findall(r"`([\w.]+)`", line)]
        page = (site / "theory" / f"{name}.html").read_text(encoding="utf-8")
        assert page.count('class="filename"') == len(asked) > 5
        assert "Code: " not in page
