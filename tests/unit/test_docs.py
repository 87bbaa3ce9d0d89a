"""What the documentation names is there."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_every_test_that_a_page_names_exists() -> None:
    sources = "\n".join(path.read_text() for path in (ROOT / "tests").rglob("*.py"))
    defined = set(re.findall(r"def (test_\w+)", sources))
    for page in (ROOT / "docs").rglob("*.md"):
        named = set(re.findall(r"`(test_\w+)`", page.read_text()))
        assert named <= defined, f"{page.name} names {sorted(named - defined)}"


def test_every_page_that_a_page_links_to_exists() -> None:
    for page in (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")):
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.relative_to(ROOT)} links to {target}"
