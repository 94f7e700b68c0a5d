"""Hooks of mkdocs: pages and figures from outside docs/, and links between them.

README.md, CONTRIBUTING.md, CHANGELOG.md and the settings reference become pages; figures of results/ and the static
page of `metafun play` become files.
Links to these files lead to their pages. Links to other files of the repository, such as its code, become plain text
unless mkdocs.yml has a `repo_url`.
"""

import posixpath
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from tools.play_page import static_files
from tools.settings_reference import render

ROOT = Path(__file__).parent.parent
# Pages of the site from the root of the repository.
PAGES = {"index.md": "README.md", "contributing.md": "CONTRIBUTING.md", "changelog.md": "CHANGELOG.md"}
_HOMES = {source: page for page, source in PAGES.items()}
_LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)\s#]+)(#[^)\s]*)?\)")
_CODE = re.compile(r"(^```.*?^```|^ {4}[^\n]*)", re.DOTALL | re.MULTILINE)
# Of tools.report. Markdown would take a line that starts with one for HTML.
_MARK = re.compile(r"<!-- /?results(?:: \S+)? -->\n|<!-- /?(?:value|claim)(?:: \S+)? -->")
_ATTRIBUTE = re.compile(r'\b(src|srcset|href)="docs/')


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the pages and figures that are not in docs/."""
    for page, source in PAGES.items():
        files.append(File.generated(config, page, content=(ROOT / source).read_text("utf-8")))
    files.append(File.generated(config, "settings.md", content=render()))
    for figure in sorted((ROOT / "results").glob("*.png")):
        files.append(File.generated(config, f"results/{figure.name}", abs_src_path=str(figure)))
    for name, content in static_files().items():
        files.append(File.generated(config, f"play/{name}", content=content))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """The page with links that lead to pages of the site.

    Args:
        markdown: text of the page.
        page: the page.
        config: mkdocs.yml.
        files: all files of the site.
    """
    here = page.file.src_uri
    origin = PAGES.get(here, f"docs/{here}")

    def relink(found: re.Match[str]) -> str:
        mark, text, target, anchor = found.groups()
        if ":" in target:
            return found[0]
        path = posixpath.normpath(posixpath.join(posixpath.dirname(origin), target))
        if (place := site_path(path)) is not None:
            return f"{mark}[{text}]({posixpath.relpath(place, posixpath.dirname(here) or '.')}{anchor or ''})"
        if not (ROOT / path).exists():
            return found[0]  # mkdocs says that it leads nowhere
        return f"[{text}]({config.repo_url.rstrip('/')}/blob/main/{path})" if config.repo_url else text

    parts = _CODE.split(_MARK.sub("", markdown))
    parts[::2] = [_LINK.sub(relink, _ATTRIBUTE.sub(r'\1="', part) if here in PAGES else part) for part in parts[::2]]
    return "".join(parts)


def site_path(path: str) -> str | None:
    """Where a file of the repository is on the site; None if it is not there.

    Args:
        path: relative to the root of the repository.
    """
    if path in _HOMES:
        return _HOMES[path]
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    return path if path.startswith("results/") and path.endswith(".png") else None
