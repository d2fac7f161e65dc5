"""mkdocs calls these: pages made from the code join those that are written, and links out of docs/ are led aright."""

from __future__ import annotations

import posixpath
import re
import sys
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

sys.path.insert(0, str(Path(__file__).parent))

import gallery
import model_pages
import python_names

import command_line

ROOT = Path(__file__).parents[2]
# Pages of the repository's root that pages in docs/ point at; anything else out there is named, not linked.
ROOT_PAGES = {"CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md", "SECURITY.md": "security.md"}
WORKER = "https://unpkg.com/iframe-worker/shim"  # which the offline plugin would have a reader's browser fetch
ALONE = ("index.md", "tutorial.md", "gallery.md", "benchmarks.md")  # a tab of one page needs no list of pages
LINK = re.compile(r"(?<!!)\[([^\]]+)\]\(([^)#:\s]+)(#[^)\s]*)?\)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are made from the code, and those of the repository's root."""
    made: dict[str, str | bytes] = {
        **command_line.pages(), **model_pages.pages(), **python_names.pages(), **gallery.pages()
    }  # fmt: skip
    for name, page in ROOT_PAGES.items():
        made[page] = (ROOT / name).read_text(encoding="utf-8")
    for path, content in made.items():
        files.append(File.generated(config, path, content=content))
    config.nav = _nav_with(config.nav, [path for path in made if path.endswith(".md")])
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Links as the site has them; one to a file that it has not becomes the file's name."""
    path = page.file.src_uri
    if path in ALONE:
        page.meta["hide"] = ["navigation"]
    original = next((name for name, moved in ROOT_PAGES.items() if moved == path), f"docs/{path}")
    here, folder = posixpath.dirname(path) or ".", posixpath.dirname(original)

    def led_aright(match: re.Match[str]) -> str:
        text, target, anchor = match[1], match[2], match[3] or ""
        in_repository = posixpath.normpath(posixpath.join(folder, target))
        if in_repository == "README.md":
            new = "index.md"
        elif in_repository in ROOT_PAGES:
            new = ROOT_PAGES[in_repository]
        elif in_repository.startswith("docs/") and target.endswith((".md", ".toml")):
            new = in_repository.removeprefix("docs/")
        elif in_repository.startswith("docs/"):
            return match[0]
        else:
            return f"`{in_repository}`"
        return f"[{text}]({posixpath.relpath(new, here)}{anchor})"

    return LINK.sub(led_aright, markdown)


def on_page_content(content: str, page: Any, **_: Any) -> str:
    """The gallery's figures are HTML, which Markdown must not touch."""
    return gallery.insert_figures(content) if page.file.src_uri == "gallery.md" else content


def on_post_page(output: str, page: Any, **_: Any) -> str:
    """Search needs no network."""
    top = "../" * page.file.dest_uri.count("/")
    return output.replace(WORKER, f"{top}site/file_search.js")


def on_post_template(output: str, template_name: str, config: MkDocsConfig) -> str:
    """The same for the page that says that there is none."""
    return output.replace(WORKER, f"{config.site_url or '/'}site/file_search.js")


def _nav_with(nav: list[Any], made: list[str]) -> list[Any]:
    """The navigation, with the pages that are made from the code under Reference, by their folder."""
    folders = {"reference/commands": "Commands", "reference/models": "Models"}
    reference: list[Any] = ["reference/python.md"] if "reference/python.md" in made else []
    for folder, title in folders.items():
        pages = [path for path in made if posixpath.dirname(path) == folder]
        index = f"{folder}/index.md"
        reference.append({title: [index, *(path for path in pages if path != index)]})
    project = {"Project": [page for page in ROOT_PAGES.values() if page in made]}
    return [
        {"Reference": [*reference, *part["Reference"]]} if isinstance(part, dict) and "Reference" in part else part
        for part in nav
    ] + [project]
