"""Files as people have them: separators, decimal commas, gaps, dates, ids; metafun fit and predict on them."""

import csv
import json
import subprocess
import sys

import numpy as np
import pytest
from typer.testing import CliRunner

from metafun import MetaFunRegressor
from metafun.cli import app
from metafun.data.csv_columns import read_csv
from metafun.data.text_entries import parse_number, parse_time
from metafun.errors import InvalidData
from test_meta_fit import LINES, blobs, settings, write


def metafun(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def refused(*arguments):
    """The line that a mistake is answered with."""
    result = metafun(*arguments)
    assert result.exit_code == 2 and "Traceback" not in result.output, result.output
    return result.stderr


def csv_file(path, text):
    path.write_text(text, "utf-8")
    return path


@pytest.mark.parametrize("separator", [",", ";", "\t", "|"])
def test_separators_and_missing_entries(tmp_path, separator):
    text = "a,b,c\n1,red,2024-05-31\nNA,n/a,?\n3,blue,2024-06-01 12:00\n".replace(",", separator)
    columns = read_csv(csv_file(tmp_path / "rows.csv", text))
    a, b, c = (columns.column(name) for name in columns.names)
    assert (a.kind, b.kind, c.kind) == ("number", "category", "time")
    np.testing.assert_array_equal(a.values, [1, np.nan, 3])
    assert b.values.tolist() == ["red", None, "blue"]
    np.testing.assert_array_equal(np.diff(c.values[[0, 2]]), [1.5 * 86400])


def test_decimal_commas_need_another_separator(tmp_path):
    columns = read_csv(csv_file(tmp_path / "rows.csv", "a;b\n3,5;1.234,5\n-0,25;2\n"))
    np.testing.assert_array_equal(columns.numbers(["a", "b"]), [[3.5, 1234.5], [-0.25, 2]])
    quoted = read_csv(csv_file(tmp_path / "quoted.csv", 'a,b\n"1,234",1\n"2,345",2\n'))
    assert quoted.column("a").kind == "category", "1,234 may be a thousand"
    assert parse_number("3,5") != parse_number("3,5")
    assert np.isnan(parse_number("1_0")), "a code, although Python reads it as 10"


@pytest.mark.parametrize(
    ("entries", "kind", "values"),
    [
        (["1", "2.5", "1e3"], "number", [1, 2.5, 1000]),
        (["true", "False", "NA"], "number", [1, 0, np.nan]),
        (["007", "12", "13"], "category", ["007", "12", "13"]),
        (["31.12.1969", "01.01.1970", "?"], "time", [-86400, 0, np.nan]),
        (["1970/1/2", "1970-01-01T00:00:00+01:00", ""], "time", [86400, -3600, np.nan]),
        (["03/04/2020", "05/06/2020", "x"], "category", ["03/04/2020", "05/06/2020", "x"]),
    ],
)
def test_what_the_entries_of_a_column_are(tmp_path, entries, kind, values):
    column = read_csv(write(tmp_path / "rows.csv", ["c", "d"], entries, "abc")).column("c")
    assert column.kind == kind
    np.testing.assert_equal(column.values.tolist(), values)


def test_a_few_entries_that_are_no_numbers_are_mistakes(tmp_path):
    columns = read_csv(write(tmp_path / "rows.csv", ["c"], ["1", "2", "l3", "4"]))
    with pytest.raises(InvalidData, match=r"row 3: 'c' is 'l3', not a number; correct it.*\(1 such row\)"):
        columns.column("c")
    with pytest.raises(InvalidData, match="row 1: 'c' is '1', not a time such as"):
        columns.column("c", "time")
    with pytest.raises(InvalidData, match="row 2: 'c' is 'NA'; fill it or remove the row"):
        read_csv(write(tmp_path / "gap.csv", ["c"], ["1", "NA"])).numbers(["c"])
    assert np.isnan(parse_time("2024-13-45")) and np.isnan(parse_time("9999999-01-01"))


@pytest.fixture(scope="module")
def iris(tmp_path_factory):
    """A table with an id, a category, a gap and three classes."""
    rng, folder = np.random.default_rng(0), tmp_path_factory.mktemp("iris")
    kinds = np.arange(30) % 3
    width = [*map(str, rng.normal(kinds).round(2))]
    width[4] = "?"
    colours = rng.choice(["red", "blue"], 30)
    names = ["id", "length", "width", "colour", "species"]
    return write(folder / "iris.csv", names, range(1, 31), rng.normal(kinds).round(2), width, colours, kinds + 100)


def test_few_classes_need_no_training(iris, tmp_path):
    said = refused("fit", iris, "--target", "species", "--out", tmp_path / "m.safetensors")
    command = said.split("shipped: metafun ")[1].strip().rstrip(".").replace("NEW.csv", str(iris)).split()
    done = metafun(*command, "--out", tmp_path / "p.csv")
    assert done.exit_code == 0, done.output
    assert "'id' looks like an id" in done.stderr and "--drop 'id'" in done.stderr
    found = read_csv(tmp_path / "p.csv")
    assert (
        "species (predicted)" in found.names
        and np.mean(np.array(found.entries["species"]) == np.array(found.entries["species (predicted)"])) > 0.5
    )


def test_more_classes_are_learned_with_a_hint(tmp_path):
    x, y = blobs(6)
    path = write(tmp_path / "kinds.csv", [*"abcde", "kind"], *x.T, y)
    done = metafun("fit", path, "--target", "kind", "--steps", 2, "--out", tmp_path / "m.safetensors")
    assert done.exit_code == 0 and "tables-classification" in done.stderr, done.output


def test_columns_are_chosen_and_dropped(iris, tmp_path):
    options = ["predict", iris, "--model", "tables-classification", "--context", iris, "--target", "species", "--json"]
    chosen = metafun(*options, "--columns", "length,width", "--columns", "colour")
    dropped = metafun(*options, "--drop", "id")
    assert chosen.exit_code == 0 and chosen.stdout == dropped.stdout and "looks like an id" not in dropped.stderr
    assert "has no column 'idd'; did you mean 'id'?" in refused(*options, "--drop", "idd")
    assert "it cannot be an input" in refused(*options, "--columns", "species")
    assert "has no inputs left" in refused(*options, "--columns", "id", "--drop", "id")


def test_predictions_are_replaced_with_overwrite_only(iris, tmp_path):
    out = tmp_path / "p.csv"
    options = ["predict", iris, "--model", "tables-regression", "--context", iris, "--target", "length", "--drop", "id"]
    assert metafun(*options, "--out", out).exit_code == 0
    assert "replace it with --overwrite" in refused(*options, "--out", out)
    done = metafun(*options, "--out", out, "--overwrite", "--quantiles", "0.05,0.5,0.95")
    assert done.exit_code == 0, done.output
    found = read_csv(out)
    low, middle, high = found.numbers([f"length_q{q}" for q in (0.05, 0.5, 0.95)]).T
    np.testing.assert_allclose(middle, found.numbers(["length (predicted)"])[:, 0])
    np.testing.assert_allclose((high - low) / 2, 1.6448536 * found.numbers(["length_std"])[:, 0], rtol=1e-5)
    assert "--quantiles 5,95: give numbers between 0 and 1" in refused(*options, "--json", "--quantiles", "5,95")
    kinds = [*options[:3], "tables-classification", *options[4:], "--json", "--quantiles", "0.5"]
    assert "a classifier predicts probabilities" in refused(*kinds)


def test_the_former_options_of_predict_still_work(iris):
    now = metafun(
        "predict", iris, "--model", "tables-classification", "--context", iris, "--target", "species", "--json"
    )
    before = metafun(
        "predict",
        "--model",
        "tables-classification",
        "--context",
        iris,
        "--target",
        iris,
        "--label",
        "species",
        "--json",
    )
    assert before.exit_code == 0 and before.stdout == now.stdout, before.output
    assert "--target names a column now; write: metafun predict" in before.stderr
    assert "name the file to predict" in refused("predict", "--model", "gp-rbf", "--context", iris)


@pytest.fixture(scope="module")
def rooms(tmp_path_factory):
    """Tasks in a file with semicolons, decimal commas, times, places and gaps; and the model trained on it."""
    folder, rng = tmp_path_factory.mktemp("rooms"), np.random.default_rng(0)
    lines = ["room;time;place;load;warmth;damp"]
    for room in range(12):
        for _ in range(6):
            day, level = rng.integers(1, 29), rng.normal()
            load = "n/a" if rng.random() < 0.2 else f"{rng.normal():.2f}"
            lines.append(f"r{room};2024-02-{day:02};{rng.choice(['a', 'b', 'c'])};{load};{level:.2f};{-level:.2f}")
    data = csv_file(folder / "rooms.csv", "\n".join(lines).replace(".", ","))
    model = folder / "rooms.safetensors"
    done = metafun(
        *("fit", data, "--target", "warmth", "--target", "damp", "--task", "room", "--out", model),
        *("--steps", 20, *settings(LINES)),
    )
    assert done.exit_code == 0, done.output
    assert "training on 12 tasks (72 rows)" in done.stderr and "validation RMSE" in done.stderr
    return data, model


def test_a_file_of_tasks_becomes_predictions(rooms, tmp_path):
    data, model = rooms
    lines = data.read_text().splitlines()
    known = csv_file(tmp_path / "known.csv", "\n".join(lines[:4]))
    new = csv_file(tmp_path / "new.csv", "load,place,time\n1.5,a,2024-03-01\nNA,attic,2024-03-02\n")
    done = metafun("predict", new, "--model", model, "--context", known, "--json")
    assert done.exit_code == 0 and "new category, 'attic'" in done.stderr, done.output
    found = json.loads(done.stdout)
    assert list(found) == ["warmth", "warmth_std", "damp", "damp_std"] and np.isfinite(list(found.values())).all()
    assert "12 tasks" in repr(MetaFunRegressor.load(model))

    several = refused("predict", new, "--model", model, "--context", data, "--json")
    assert "has rows of 12 tasks in 'room', but each call is about one task" in several
    assert "--columns and --drop do not apply" in refused(
        "predict", new, "--model", model, "--context", known, "--drop", "load"
    )
    wrong = csv_file(tmp_path / "wrong.csv", "load,place,time\nmuch,a,2024-03-01\n")
    assert "row 1: 'load' is 'much', not a number" in refused(
        "predict", wrong, "--model", model, "--context", known, "--json"
    )


def test_each_of_several_targets_is_one_column(tmp_path):
    np.savez(tmp_path / "b.npz", X=np.zeros((8, 1)), a=np.zeros(8), b=np.zeros((8, 2)), t=np.arange(8) // 2)
    said = refused("fit", tmp_path / "b.npz", "--target", "a", "--target", "b", "--task", "t", "--out", tmp_path / "m")
    assert "'b' is [8, 2]; each of several --target is [rows]" in said


def test_the_bound_on_fields_is_that_of_the_reader_alone(tmp_path):
    former = csv.field_size_limit()
    with pytest.raises(InvalidData, match="field larger than field limit"):
        read_csv(csv_file(tmp_path / "a.csv", "x,y\n" + "1" * 70_000 + ",2\n"))
    assert csv.field_size_limit() == former


def test_a_forgotten_task_is_suggested(rooms, tmp_path):
    said = refused("fit", rooms[0], "--target", "warmth", "--out", tmp_path / "m.safetensors")
    assert "'warmth' has fractions, so it is no class" in said and "Did you forget --task room" in said
    said = refused("fit", rooms[0], "--target", "warmth", "--task", "warmth", "--out", tmp_path / "m.safetensors")
    assert "are both 'warmth'" in said
    lines = rooms[0].read_text().splitlines()
    lines[5] = ";" + lines[5].split(";", 1)[1]
    gap = csv_file(tmp_path / "gap.csv", "\n".join(lines))
    said = refused("fit", gap, "--target", "warmth", "--task", "room", "--out", tmp_path / "m.safetensors")
    assert "row 5: 'room' is ''; every row needs an entry" in said


@pytest.mark.slow
def test_the_package_is_the_command():
    done = subprocess.run([sys.executable, "-m", "metafun", "--version"], capture_output=True, text=True, check=True)
    other = subprocess.run(
        [sys.executable, "-m", "metafun.cli", "--version"], capture_output=True, text=True, check=True
    )
    assert done.stdout == other.stdout and done.stdout.strip()
