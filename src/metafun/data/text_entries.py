"""What an entry of a text file stands for: a number, a time, or nothing."""

import datetime
import math
import re

# Those of pandas, and the question mark of older archives.
MISSING = {
    "",
    "?",
    "NA",
    "N/A",
    "n/a",
    "na",
    "NaN",
    "nan",
    "-NaN",
    "-nan",
    "NULL",
    "null",
    "None",
    "<NA>",
    "#NA",
    "#N/A",
}
MISSING |= {"#N/A N/A", "1.#IND", "-1.#IND", "1.#QNAN", "-1.#QNAN"}
DECIMAL_COMMA = re.compile(r"[+-]?([0-9]{1,3}(\.[0-9]{3})+|[0-9]*),[0-9]+([eE][+-]?[0-9]+)?")
LEADING_ZERO = re.compile("0[0-9]+")
ISO_TIME = re.compile(r"[0-9]{4}[-/][0-9]{1,2}[-/][0-9]{1,2}([ T][0-9:.,+\-Z]+)?")
DOTTED_DATE = re.compile(r"([0-9]{1,2})\.([0-9]{1,2})\.([0-9]{4})")
BOOLS = {"true": 1.0, "false": 0.0}


def is_missing(entry: str) -> bool:
    """Whether an entry says that there is none."""
    return entry in MISSING


def parse_number(entry: str, decimal_comma: bool = False) -> float:
    """The number, or NaN if the entry is none.

    Args:
        entry: the text.
        decimal_comma: whether 3,5 and 1.234,5 are numbers too.
    """
    try:
        return math.nan if "_" in entry else float(entry)  # Python reads 1_0 as 10, but it is a code
    except ValueError:
        if decimal_comma and DECIMAL_COMMA.fullmatch(entry):
            return float(entry.replace(".", "").replace(",", "."))
        return math.nan


def parse_bool(entry: str) -> float:
    """1 for true and 0 for false, or NaN."""
    return BOOLS.get(entry.lower(), math.nan)


def parse_time(entry: str) -> float:
    """Seconds since 1970 of 2024-05-31, 2024/05/31, 31.05.2024 or 2024-05-31T12:30:00, or NaN if the entry is none.

    A time without a zone counts as UTC.
    """
    if dotted := DOTTED_DATE.fullmatch(entry):
        entry = f"{dotted[3]}-{int(dotted[2]):02}-{int(dotted[1]):02}"
    if not ISO_TIME.fullmatch(entry):
        return math.nan
    date, _, time = entry.replace("/", "-").replace("T", " ").partition(" ")
    year, month, day = date.split("-")
    try:
        moment = datetime.datetime.fromisoformat(f"{year}-{int(month):02}-{int(day):02}{'T' if time else ''}{time}")
        return (moment if moment.tzinfo else moment.replace(tzinfo=datetime.UTC)).timestamp()
    except (ValueError, OverflowError):
        return math.nan


def looks_like_id(entry: str) -> bool:
    """Whether an entry of digits is a code rather than a number: 007."""
    return LEADING_ZERO.fullmatch(entry) is not None
