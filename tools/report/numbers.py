"""Numbers in the text of a page that something must stand behind: a recorded result, a checked claim, or a fact."""

import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from metafun.errors import InvalidResults
from metafun.schema import parse

FACTS = Path(__file__).parent / "facts.toml"

_WORD = "one|two|three|four|five|six|seven|eight|nine|ten|twelve|twenty|fifty|hundred|thousand|million"
_FRACTION = r"half|third|quarter|fifth|sixth|seventh|eighth|ninth|tenth|(?:\w+-)?hundredth|(?:\w+-)?thousandth"
NUMBER = re.compile(
    r"\d[\d,]*\.\d+(?:e-?\d+)?|\d+e-?\d+"  # decimals, powers of ten
    r"|\d+(?:\.\d+)?\s?%"  # percentages
    r"|\d{1,3}(?:,\d{3})+"  # thousands
    rf"|\b(?:\d+|{_WORD}) (?:milliseconds?|seconds?|minutes?|hours?|days?)\b"  # times
    r"|\ban? (?:minute|hour|day)\b(?: or two)?"
    rf"|\b(?:\d+|{_WORD}) times\b|\btwice\b|\b(?:{_WORD})s? of [\d,]+"  # factors, counts of many
    rf"|\b(?:an?|one|two|about) (?:{_FRACTION})s?\b|\bhalf of\b",  # fractions
    re.IGNORECASE,
)
# Not prose: what is rendered or checked otherwise, code, targets of links, comments.
_NOT_PROSE = (
    re.compile(r"<!-- results: .*?<!-- /results -->", re.DOTALL),
    re.compile(r"<!-- (value|claim): [^>]*-->.*?<!-- /\1 -->", re.DOTALL),
    re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE),
    re.compile(r"^ {4}.*$", re.MULTILINE),
    re.compile(r"`[^`\n]*(?:\n[^`\n]+)?`"),
    re.compile(r"\]\([^)]*\)"),
    re.compile(r"\b(?:Section|Definition|Python) \d+\.\d+"),
    re.compile(r"<!--.*?-->", re.DOTALL),
)
# A character that no page has; it ends every number and every fact.
_REMOVED = "\0"


@dataclass(frozen=True)
class Fact:
    """A passage with numbers that are not measurements here: settings, sizes, published values.

    Args:
        text: the passage, as the page has it; line breaks count as spaces.
        source: where the numbers come from.
        pages: the pages that have it.
    """

    text: str
    source: str
    pages: tuple[str, ...]


def load_facts(path: Path = FACTS) -> tuple[Fact, ...]:
    """The facts of a TOML file."""
    return tuple(parse(Fact, fact) for fact in tomllib.loads(path.read_text("utf-8"))["facts"])


def unfounded(pages: Mapping[str, str], facts: tuple[Fact, ...]) -> Iterator[str]:
    """Every number without a source, and every fact that its page does not have (any more).

    Args:
        pages: Markdown text by the name of the page.
        facts: passages that may have numbers.
    """
    for name, text in pages.items():
        prose = _prose(text)
        for fact in (fact for fact in facts if name in fact.pages):
            if fact.text not in prose:
                yield f"{name} does not have the fact “{fact.text}” of facts.toml"
            prose = prose.replace(fact.text, _REMOVED)
        for found in NUMBER.finditer(prose):
            around = prose[max(0, found.start() - 40) : found.end() + 30].replace(_REMOVED, "…")
            yield f"{name}: no line of results carries “{found[0]}” in “…{around}…”"


def check_numbers(pages: Mapping[str, str], facts: tuple[Fact, ...]) -> None:
    """InvalidResults if a page has a number that nothing stands behind.

    Args:
        pages: Markdown text by the name of the page.
        facts: passages that may have numbers.
    """
    if found := list(unfounded(pages, facts)):
        remedy = "Render it (tools/report/values.py), check it (claims.py), or name its source (facts.toml)."
        raise InvalidResults("\n".join([*found, remedy]))


def _prose(text: str) -> str:
    for pattern in _NOT_PROSE:
        text = pattern.sub(_REMOVED, text)
    return re.sub(r"\s+", " ", text)
