"""60 sensors with few readings each: `meta_fit` beside a Gaussian process per sensor and a forest on all of them.

Appends a line to results/sensors.jsonl and draws docs/sensors.svg from it; --redraw only draws.

    python scripts/sensors.py --beside 0
    python scripts/sensors.py --redraw
"""

import json
import time
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from provenance import parser, provenance

from metafun.bench.collection_data import Collection, Split
from metafun.bench.collection_methods import FOREST_GP, META_FIT, METHODS, Predict
from metafun.files import append_json
from metafun.plots.sensors import Sensor, plot_sensors

HOME = Path(__file__).parent.parent
RESULTS, FIGURE = HOME / "results" / "sensors.jsonl", HOME / "docs" / "sensors.svg"
SENSORS, READINGS, KNOWN, NOISE = 60, 16, 4, 0.2
SEEDS = (0, 1)
COMPARED = (META_FIT, FOREST_GP, "pooled forest", "per-task GP")
DRAWN = 3
HOURS = np.linspace(0, 24, 49)


def temperature(sensors: NDArray, hours: NDArray) -> NDArray:
    """°C at each hour [sensors, hours]: a daily wave that is weaker and later the deeper a sensor is in the soil.

    Args:
        sensors: mean, amplitude at the surface, and depth relative to the damping depth, [sensors, 3].
        hours: hours of the day, [sensors, hours].
    """
    mean, amplitude, depth = sensors.T[..., None]
    phase = 2 * np.pi * (hours - 9) / 24 - depth
    second = 0.3 * np.exp(-(np.sqrt(2) - 1) * depth) * np.sin(2 * phase - 0.4)
    return mean + amplitude * np.exp(-depth) * (np.sin(phase) + second)


def draw_sensors(seed: int) -> tuple[NDArray, Collection]:
    """What the sensors are like, and their noisy readings at random hours."""
    rng = np.random.default_rng(seed)
    sensors = np.stack([rng.normal(15, 3, SENSORS), rng.uniform(6, 12, SENSORS), rng.uniform(0, 2, SENSORS)], axis=1)
    hours = np.sort(rng.uniform(0, 24, (SENSORS, READINGS)), axis=1)
    readings = temperature(sensors, hours) + rng.normal(0, NOISE, hours.shape)
    tasks = [(x[:, None], y) for x, y in zip(hours, readings, strict=True)]
    return sensors, Collection("sensors", f"scripts/sensors.py, seed {seed}", tasks)


def measure(seed: int) -> dict[str, Any]:
    """RMSE in °C and coverage of the 95 % interval on the readings of held-out sensors, and what is drawn of them."""
    sensors, collection = draw_sensors(seed)
    split = Split(collection, seed)
    found: dict[str, Any] = {"rmse": {}, "coverage": {}, "seconds": {}, "curves": {}}
    for name in COMPARED:
        start = time.perf_counter()
        predict = METHODS[name](split.train, seed)
        found["seconds"][name] = round(time.perf_counter() - start, 1)
        found["rmse"][name], found["coverage"][name] = scores(predict, split)
        found["curves"][name] = curves(predict, split)
    contexts = split.contexts(KNOWN)[:DRAWN]
    order = np.random.default_rng(seed).permutation(SENSORS)[:DRAWN]  # the first that Split holds out
    found["truth"] = rounded(temperature(sensors[order], np.tile(HOURS, (DRAWN, 1))))
    found["known"] = [
        {"x": rounded(split.inputs.inverse(c.x)[:, 0]), "y": rounded(split.outputs.inverse(c.y[:, None])[:, 0])}
        for c in contexts
    ]
    return found


def scores(predict: Predict, split: Split) -> tuple[float, float]:
    """RMSE in °C, and coverage of the 95 % interval."""
    unit = split.outputs.deviation[0]
    errors, inside = [], []
    for context in split.contexts(KNOWN):
        mean, std = predict(context.x, context.y, context.x_target)
        errors.append(mean - context.y_target)
        inside.append(abs(errors[-1]) < 1.96 * std)
    return float(unit * np.sqrt(np.mean(np.square(np.concatenate(errors))))), float(np.mean(np.concatenate(inside)))


def curves(predict: Predict, split: Split) -> list[dict[str, list[float]]]:
    """Mean and standard deviation over the day of the first held-out sensors, in °C."""
    at, found = split.inputs(HOURS[:, None]), []
    for context in split.contexts(KNOWN)[:DRAWN]:
        mean, std = predict(context.x, context.y, at)
        mean = split.outputs.inverse(mean[:, None])[:, 0]
        found.append({"mean": rounded(mean), "std": rounded(split.outputs.deviation[0] * std)})
    return found


def rounded(values: NDArray) -> Any:
    return np.round(values, 2).tolist()


def draw(line: dict[str, Any], path: Path) -> None:
    """The figure of a line of results: sensors of the first seed, the errors of all."""
    first = line["runs"][0]
    panels = [
        Sensor(
            hours=HOURS,
            truth=np.array(first["truth"][i]),
            known=(np.array(first["known"][i]["x"]), np.array(first["known"][i]["y"])),
            predictions={
                name: tuple(np.array(first["curves"][name][i][part]) for part in ("mean", "std")) for name in COMPARED
            },
        )
        for i in range(DRAWN)
    ]
    errors = {name: [run["rmse"][name] for run in line["runs"]] for name in COMPARED}
    plot_sensors(panels, errors, META_FIT, path)


if __name__ == "__main__":
    options = parser(__doc__)
    options.add_argument("--redraw", action="store_true", help="draw the last line of results again")
    given = options.parse_args()
    if not given.redraw:
        runs = [measure(seed) for seed in SEEDS]
        data = {f"seed {seed}": draw_sensors(seed)[1].fingerprint for seed in SEEDS}
        setting = {"sensors": SENSORS, "readings": READINGS, "known": KNOWN, "noise": NOISE}
        append_json(RESULTS, {**setting, "runs": runs, **provenance(SEEDS, given.beside, data)})
    draw(json.loads(RESULTS.read_text("utf-8").splitlines()[-1]), FIGURE)
