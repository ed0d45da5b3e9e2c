"""Static documentation site: one command builds every page, broken links fail."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from studio.text.help_pages import load_pages, write_pages

ROOT = Path(__file__).parents[2]
BOOTSTRAP = [sys.executable, str(ROOT / "packaging" / "bootstrap.py")]

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]


def test_docs_command_builds_every_page(tmp_path: Path) -> None:
    out = tmp_path / "site"
    done = subprocess.run([*BOOTSTRAP, "docs", "--out", str(out)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    for page in load_pages():
        name = page.path.removesuffix(".md")
        file = out / ("index.html" if name == "index" else f"{name}/index.html")
        html = file.read_text("utf-8")
        assert page.title.replace("&", "&amp;") in html, page.path
        assert "{{" not in html.partition("</article>")[0].partition("<article")[2]
    assert "logprob_gap/max" in (out / "reference/metrics/index.html").read_text("utf-8")


def test_broken_link_fails_the_build(tmp_path: Path) -> None:
    environment = subprocess.run(
        [*BOOTSTRAP, "environment", "docs", "--json"], capture_output=True, text=True, check=True
    )
    python = json.loads(environment.stdout.splitlines()[-1])["python"]
    write_pages(tmp_path)
    page = tmp_path / "docs" / "start" / "quickstart.md"
    page.write_text(page.read_text("utf-8") + "\n[Gone](gone.md)\n", "utf-8")
    done = subprocess.run(
        [python, "-m", "zensical", "build", "--strict"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert done.returncode != 0
    assert "page does not exist" in done.stdout + done.stderr
