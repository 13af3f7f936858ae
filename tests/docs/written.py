"""Reads README and docs: their fenced blocks, commands, links and anchors."""

import re
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "docs"))
FENCE = re.compile(r"^```(\w+)([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)\s]+)\)")
COMMANDS = ("python ", "pip ", "pytest", "ruff ", "mlflow ", "mkdocs ", "ray ", "fltune ", ".ci/")


@dataclass(frozen=True)
class Block:
    """A fenced block of a page."""

    page: str
    language: str
    title: str
    text: str

    def __str__(self):
        return f"{self.page}: {self.title or self.text.splitlines()[0]}"


def pages():
    """Return README, CONTRIBUTING and every page of the docs, by path in the project."""
    paths = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
    return {str(path.relative_to(ROOT)): path.read_text(encoding="utf-8") for path in paths}


def all_pages():
    """Return the same with the pages that are made when the docs are built."""
    import reference_pages

    made = {f"docs/{path}": text for path, text in reference_pages.pages().items()}
    return {**pages(), **made}


def blocks(language, texts=None):
    """Return the fenced blocks of a language."""
    found = []
    for page, text in (pages() if texts is None else texts).items():
        for kind, rest, inner in FENCE.findall(text):
            if kind == language:
                title = re.search(r'title="([^"]+)"', rest)
                found.append(Block(page, kind, title[1] if title else "", inner))
    return found


def commands():
    """Return (page, command) of what is shown as a command, or named in a sentence; each once."""
    found = {}
    for page, text in pages().items():
        fenced = [line for block in blocks("bash", {page: text}) for line in block.text.split("\n")]
        plain = FENCE.sub("", text)
        lines = [*fenced, *re.findall(r"^    +(\S.*)$", plain, re.MULTILINE)]
        for line in [*lines, *re.findall(r"`(python [^`\n]+)`", plain)]:
            for part in line.split(" && "):
                command = re.sub(r"\s+#.*| {2,}\S.*", "", part).strip()
                if command.startswith(COMMANDS) and not _is_synopsis(command):
                    found.setdefault(command, page)
    return [(page, command) for command, page in found.items()]


def _is_synopsis(command):
    """Whether it has optional parts; those are brackets outside of quotes."""
    return "[" in re.sub(r"'[^']*'", "", command)


def anchors(text):
    """Return the anchors of a page, as mkdocs and GitHub make them."""
    heads = re.findall(r"^#+ (.+)$", FENCE.sub("", text), re.MULTILINE)
    named = [re.search(r"\{ ?#([\w-]+) ?\}", head) for head in heads]
    plain = [re.sub(r"[^\w\s-]", "", head).strip().lower() for head in heads]
    return {n[1] if n else re.sub(r"[\s-]+", "-", p) for n, p in zip(named, plain, strict=True)}
