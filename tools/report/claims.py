"""Claims in the text of a page, `<!-- claim: NAME -->about half<!-- /claim -->`: words that hold for the results."""

import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from math import inf
from pathlib import Path

from metafun.bench.collection_methods import FOREST_GP, META_FIT
from metafun.errors import InvalidResults

from .comparisons import last_sensors
from .records import read_records
from .regression import SERIES_RIVALS, latest_series, series_mean
from .values import image_rates, mean_of, our_sinusoid, record_of

_CLAIM = re.compile(r"<!-- claim: (\S+) -->(.*?)<!-- /claim -->", re.DOTALL)
# Arithmetic throughput of an NVIDIA H200 in half precision, in TFLOP/s, by NVIDIA's data sheet.
PEAK_TERAFLOPS = 989


@dataclass(frozen=True)
class Claim:
    """Words, and whether the results support them.

    Args:
        words: what the page may say.
        holds: whether that is true of a folder of results.
    """

    words: str
    holds: Callable[[Path], bool]


def unsupported(pages: Mapping[str, str], results: Path) -> Iterator[str]:
    """Every claim that has other words than its check, or that the results do not support.

    Args:
        pages: Markdown text by the name of the page.
        results: the folder of the .jsonl files.
    """
    for page, text in pages.items():
        for name, written in _CLAIM.findall(text):
            words = " ".join(written.split())
            if name not in CLAIMS:
                yield f"{page}: tools/report/claims.py has no claim '{name}'"
            elif words != CLAIMS[name].words:
                yield f"{page}: the claim '{name}' says “{words}”, but “{CLAIMS[name].words}” is what is checked"
            elif not CLAIMS[name].holds(results):
                yield f"{page}: the results do not support “{words}” (claim '{name}')"


def check_claims(pages: Mapping[str, str], results: Path) -> None:
    """InvalidResults if a page has a claim that does not hold.

    Args:
        pages: Markdown text by the name of the page.
        results: the folder of the .jsonl files.
    """
    if found := list(unsupported(pages, results)):
        raise InvalidResults("\n".join([*found, "Correct the page, or the claim in tools/report/claims.py."]))


def _seconds(file: str, low: float, high: float, **fields: str) -> Callable[[Path], bool]:
    return lambda results: low <= record_of(results, file, **fields)["train_seconds"] <= high


def _near_the_exact_process(results: Path) -> bool:
    line = record_of(results, "gp", run="gp")
    pairs = [(f"oracle_log_likelihood_{n}shot", f"log_likelihood_{n}shot") for n in (5, 15)]
    return all(mean_of(line, exact) - mean_of(line, ours) < 0.01 for exact, ours in pairs)


def _half_of_the_gap(results: Path) -> bool:
    line, ceiling = record_of(results, "gp", run="gp-bnp"), record_of(results, "gp-ceiling", preset="gp-bnp")
    gap = mean_of(line, "oracle_log_likelihood_anyshot") - mean_of(line, "log_likelihood_anyshot")
    return 0.4 <= (ceiling["known"] - ceiling["unknown"]) / gap <= 0.6


def _tasks_and_images(results: Path) -> bool:
    """A step of 1-shot training beside one of 5-shot training, with 5 classes and with 20."""
    for ways in (5, 20):
        tasks, images = [], []
        for shots in (1, 5):
            config = tomllib.loads(record_of(results, "omniglot", run=f"omniglot-{ways}way-{shots}shot")["config"])
            batch = config["training"]["batch"] * config["training"]["steps"]
            tasks.append(batch)
            images.append(batch * (config["tasks"]["shots"] + config["tasks"]["queries"]))
        if tasks[0] != 2 * tasks[1] or abs(images[0] / images[1] - 1.2) > 0.01:
            return False
    return True


def _twice_the_time(results: Path) -> bool:
    rates = image_rates(results)
    return all(1.75 < rates[64, kind] / rates[128, kind] < 2.25 for kind in ("float32", "bfloat16"))


def _a_tenth(results: Path) -> bool:
    return all(line["teraflops"] <= 0.1 * PEAK_TERAFLOPS for line in read_records(results / "image-speed.jsonl"))


def _sinusoid_alone(results: Path) -> bool:
    return all(line.beside == 0 for line in our_sinusoid(results))


def _sensor_ratios(method: str, low: float, high: float) -> Callable[[Path], bool]:
    """Whether the error of a method over that of `meta_fit` is in a range, for every seed."""

    def holds(results: Path) -> bool:
        found = [run["rmse"] for run in last_sensors(results)["runs"]]
        return all(low < rmse[method] / rmse[META_FIT] < high for rmse in found)

    return holds


def _sensors_training(results: Path) -> bool:
    return all(run["seconds"][META_FIT] < 120 for run in last_sensors(results)["runs"])


def _series_error_ratios(results: Path, rival: str) -> dict[int, float]:
    """RMSE of the model for any series over that of a rival, both in the mean over collections, by number of points."""
    lines = latest_series(results)
    found = {}
    for points in {line["points"] for line in lines}:
        scores = [line["scores"] for line in lines if line["points"] == points]
        found[points] = series_mean(scores, "MetaFun", "rmse") / series_mean(scores, SERIES_RIVALS[rival], "rmse")
    return found


def _better_than_tuned(results: Path) -> bool:
    return all(ratio < 1 for ratio in _series_error_ratios(results, "GP").values())


def _as_good_as_chosen(results: Path) -> bool:
    ratios = _series_error_ratios(results, "kernel chosen")
    return ratios[5] < 1 and ratios[10] < 1 and 1 <= ratios[20] < 1.05


def _likelier_everywhere(results: Path) -> bool:
    lines = [line["scores"] for line in latest_series(results)]
    return all(
        each["MetaFun"]["log_likelihood"] > each[rival]["log_likelihood"]
        for each in lines
        for rival in SERIES_RIVALS.values()
    )


CLAIMS = {
    "series-errors": Claim("a lower error than GP with each number of points", _better_than_tuned),
    "series-chosen": Claim("lower with 5 and 10 points, and slightly higher with 20", _as_good_as_chosen),
    "series-likelihoods": Claim("higher on each collection with each number of points", _likelier_everywhere),
    "sensors-times": Claim("three to seven times less error", _sensor_ratios("per-task GP", 3, 7)),
    "sensors-half": Claim("less than half of the error", _sensor_ratios(FOREST_GP, 2, inf)),
    "sensors-training": Claim("less than two minutes", _sensors_training),
    "sinusoid-alone": Claim("alone on the GPU", _sinusoid_alone),
    "demo-seconds": Claim("about a minute", _seconds("demo", 45, 90)),
    "demo-glyphs-seconds": Claim("about a minute", _seconds("demo-glyphs", 45, 90)),
    "demo-gp-seconds": Claim("about two minutes", _seconds("gp", 90, 150, run="demo-gp")),
    "near-the-exact-process": Claim("within 0.01", _near_the_exact_process),
    "half-of-the-gap": Claim("about half", _half_of_the_gap),
    "tasks-and-images": Claim("twice as many tasks and a fifth more images", _tasks_and_images),
    "twice-the-time": Claim("only about twice the time", _twice_the_time),
    "a-tenth": Claim("at most a tenth", _a_tenth),
}
