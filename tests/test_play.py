"""The server of `metafun play`: who may ask, what is refused, and that answers are those of the models."""

import asyncio
import json
import socket
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from starlette.testclient import TestClient
from typer.testing import CliRunner

from metafun import MetaFunRegressor
from metafun.cli import app as cli
from metafun.config import load_config, resolve
from metafun.errors import InvalidCheckpoint, InvalidConfig
from metafun.estimators.trained import Trained, open_trained
from metafun.model.task import Points
from metafun.play import exact, glyphs, tables
from metafun.play.curves import MAX_POINTS, CurveModel
from metafun.play.glyphs import GlyphModel
from metafun.play.server import MAX_JSON_BYTES, Playground, make_app
from metafun.play.serving import bind
from metafun.tasks.curves import CurveTasks

TOKEN, HOST = "secret-token", "127.0.0.1:8000"
POINTS = [[-1.2, 0.4], [-0.3, -0.8], [0.9, 1.1]]


@pytest.fixture(scope="module")
def model():
    return CurveModel("gp-rbf", open_trained("gp-rbf"))


@pytest.fixture(scope="module")
def app(model):
    return make_app(Playground({"gp-rbf": model}, GlyphModel("glyphs", open_trained("glyphs"))), TOKEN, [HOST])


@pytest.fixture(scope="module")
def client(app):
    return TestClient(app, base_url=f"http://{HOST}")


def post(client, path, content, **options):
    body = content if isinstance(content, bytes | str) else json.dumps(content)
    return client.post(f"/{TOKEN}/{path}", content=body, **options)


def curve(client, points, **others):
    answer = post(client, "curves", {"model": "gp-rbf", "points": points, **others})
    assert answer.status_code == 200, answer.text
    return np.frombuffer(answer.content, "<f4")


def test_only_this_machine_with_the_token_may_ask(client):
    page = f"/{TOKEN}/"
    assert (
        client.get(page).status_code == 200
        and "default-src 'self'" in client.get(page).headers["content-security-policy"]
    )
    for path in ("/", "/wrong/", f"/{TOKEN}x/", f"/%ff{TOKEN}/", "/info.json", f"//{TOKEN}/"):
        assert client.get(path).status_code == 403, path
    for headers in ({"host": "attacker.example:8000"}, {"host": "127.0.0.1"}, {"origin": "http://attacker.example"}):
        assert client.get(page, headers=headers).status_code == 403, headers
    assert client.get(page, headers={"origin": f"http://{HOST}"}).status_code == 200


def test_a_request_that_ends_early_is_no_failure_of_the_server(app):
    """A browser that is closed would leave a traceback."""
    answers = []
    received = iter([{"type": "http.request", "body": b"{", "more_body": True}, {"type": "http.disconnect"}])

    async def receive():
        return next(received)

    async def send(message):
        answers.append(message.get("status"))

    scope = {"type": "http", "method": "POST", "path": f"/{TOKEN}/curves", "query_string": b""}
    asyncio.run(app(scope | {"headers": [(b"host", HOST.encode())]}, receive, send))
    assert answers[0] == 400


def test_nothing_but_the_page_is_served(client):
    assert client.get(f"/{TOKEN}/play.css").headers["content-type"].startswith("text/css")
    for name in ("server.py", "..%2fserver.py", "%2e%2e/server.py", "page/", "none"):
        assert client.get(f"/{TOKEN}/{name}").status_code == 404, name


def test_what_is_too_large_or_no_request_is_refused(client):
    assert post(client, "curves", b" " * (MAX_JSON_BYTES + 1)).status_code == 413

    def parts():
        for _ in range(3):
            yield b" " * (MAX_JSON_BYTES // 2)

    assert client.post(f"/{TOKEN}/curves", content=parts()).status_code == 413  # without a length
    for content in (b"", b"[]", b"\xff", "[" * 5000, {}, {"model": "other", "points": []}, {"model": "gp-rbf"}):
        answer = post(client, "curves", content)
        assert answer.status_code == 400 and answer.json()["error"], content
    for points in (
        [[1]],
        [1],
        "x",
        [["a", "b"]],
        [[0, None]],
        [[0, 0]] * (MAX_POINTS + 1),
        [[float("inf"), 0]],
        [[10**400, 0]],
    ):
        assert post(client, "curves", {"model": "gp-rbf", "points": points}).status_code == 400, points


def test_an_answer_is_that_of_the_estimator(client, model):
    x = model.x[:, None]
    mean, std = MetaFunRegressor("gp-rbf").fit(*np.split(np.array(POINTS), [1], 1)).predict(x, return_std=True)
    found = curve(client, POINTS)
    means, stds, weights = np.split(found, [7 * len(x), 14 * len(x)])
    np.testing.assert_allclose(means.reshape(7, -1)[-1], mean.ravel(), atol=1e-4)
    np.testing.assert_allclose(stds.reshape(7, -1)[-1], std.ravel(), atol=1e-4)
    assert weights.shape == (len(x) * 3,) and (weights > 0).all()


def test_a_point_changes_the_curve_and_the_order_does_not(client):
    before, more = curve(client, POINTS)[:1000], curve(client, [*POINTS, [0.2, 2.5]])[:1000]
    assert abs(before - more).max() > 0.5
    np.testing.assert_allclose(curve(client, POINTS[::-1])[:1000], before, atol=1e-4)
    assert np.isfinite(curve(client, [])).all()


def test_a_curve_that_is_not_finite_is_refused(client):
    for path in ("curves", "functions"):
        answer = post(client, path, {"model": "gp-rbf", "points": [[3e38, 3e38]], "exact": True})
        assert answer.status_code == 400 and "remove points that are far away" in answer.json()["error"], path


def test_the_exact_process_is_that_of_known_hyperparameters(monkeypatch):
    monkeypatch.setattr(exact, "DRAWS", 4)
    monkeypatch.setattr(exact, "KEPT", 3)
    x, y, at = np.array([-1.0, 0.3, 1.2]), np.array([0.5, -1.0, 2.0]), np.linspace(-2, 2, 9)
    predict = jax.jit(exact.exact_prediction(CurveTasks(lengthscale=(0.4, 0.4), noise=0.2)))
    found = predict(Points.of(x[:, None], y[:, None]), jnp.asarray(at, float)[:, None])

    def covariance(a, b):
        return np.exp(-((a[:, None] - b) ** 2) / (2 * 0.4**2))

    inverse = np.linalg.inv(covariance(x, x) + 0.2**2 * np.eye(3))
    across = covariance(at, x)
    variance = 1 + 0.2**2 - np.einsum("mi,ij,mj->m", across, inverse, across)
    np.testing.assert_allclose(found.mean[:, 0], across @ inverse @ y, atol=1e-5)
    np.testing.assert_allclose(found.std[:, 0], np.sqrt(variance), atol=1e-5)


def test_functions_go_through_the_points(client, model):
    answer = post(client, "functions", {"model": "gp-rbf", "points": [[x, 1.0] for x in np.linspace(-1, 1, 12)]})
    functions = np.frombuffer(answer.content, "<f4").reshape(-1, 161)
    near, far = functions[:, 60:100], functions[:, -1]
    assert len(functions) == 6 and abs(near - 1).max() < 0.4 and far.std() > 0.1


def test_other_models_are_refused():
    with pytest.raises(InvalidCheckpoint, match="does not predict curves"):
        CurveModel("glyphs", open_trained("glyphs"))
    experiment = resolve(load_config("curves", ["model.representation=8", "model.iterations=1"]))
    with pytest.raises(InvalidCheckpoint, match="takes its scale from at least 2 points"):
        CurveModel("curves", Trained(experiment, experiment.build_model(jax.random.key(0))))
    with pytest.raises(InvalidCheckpoint, match="does not classify pictures"):
        GlyphModel("gp-rbf", open_trained("gp-rbf"))


def test_a_port_in_use_is_an_error(monkeypatch):
    with bind(0) as taken:
        host, port = taken.getsockname()
        assert host == "127.0.0.1"
        with pytest.raises(InvalidConfig, match="is not free"):
            bind(port)
    with bind(0) as stopped, socket.create_connection(stopped.getsockname()):
        port = stopped.getsockname()[1]
        stopped.accept()[0].close()  # the side that closes first keeps the port for a minute
    bind(port).close()
    monkeypatch.setattr("metafun.cli.play.find_spec", lambda name: None)
    result = CliRunner().invoke(cli, ["play"])
    assert result.exit_code == 2 and 'pip install "metafun[play]"' in result.stderr


# A triangle and a ring, with strokes like those of a mouse.
TRIANGLE = [[[0.2, 0.8], [0.5, 0.2], [0.8, 0.8], [0.2, 0.8]]]
RING = [[[0.5 + 0.3 * np.cos(a), 0.5 + 0.3 * np.sin(a)] for a in np.linspace(0, 6.3, 30)]]


def test_a_drawing_is_classified_from_one_example_of_each(client):
    pictures = [post(client, "glyphs", {"strokes": s, "examples": []}).json()["picture"] for s in (TRIANGLE, RING)]
    examples = [{"label": label, "picture": seen} for label, seen in zip("△○", pictures, strict=True)]
    wobbly = [[[0.25, 0.7], [0.47, 0.3], [0.7, 0.74], [0.24, 0.69]]]
    found = post(client, "glyphs", {"strokes": wobbly, "examples": examples}).json()
    assert found["probabilities"]["△"] > 0.9 and found["weights"][0] > found["weights"][1]
    turned = post(client, "glyphs", {"strokes": wobbly, "examples": examples[::-1]}).json()
    assert turned["probabilities"]["△"] == pytest.approx(found["probabilities"]["△"], abs=1e-4)
    letters = post(client, "letters", {}).json()
    delta = post(client, "glyphs", {"strokes": wobbly, "examples": letters}).json()["probabilities"]
    assert max(delta, key=delta.get) == "Δ"


def test_a_picture_does_not_depend_on_place_and_size():
    seen = glyphs.picture(TRIANGLE)
    moved = glyphs.picture([[[0.1 * x + 5, 0.1 * y - 3] for x, y in TRIANGLE[0]]])
    assert abs(seen.astype(int) - moved).max() <= 3 and 0.05 < (seen > 128).mean() < 0.3


def test_what_is_no_drawing_is_refused(client):
    for strokes in ([], [[]], "x", [[1]], [[["a", 1]]], [[[0, 0]] * 30_000], [[[float("nan"), 0]]], [[[0, 10**400]]]):
        assert post(client, "glyphs", {"strokes": strokes, "examples": []}).status_code == 400, str(strokes)[:40]
    for examples in (None, [1], [{"label": "a", "picture": "AAAA"}], [{}]):
        assert post(client, "glyphs", {"strokes": RING, "examples": examples}).status_code == 400, examples
    picture = post(client, "glyphs", {"strokes": RING, "examples": []}).json()["picture"]
    many = [{"label": str(i), "picture": picture} for i in range(11)]
    assert "at most" in post(client, "glyphs", {"strokes": RING, "examples": many}).json()["error"]


def table(client, text, **options):
    answer = client.post(f"/{TOKEN}/table", params={"name": "mine.csv", **options}, content=text)
    return answer.status_code, answer.json()


def ran(code, folder, name, text, monkeypatch):
    """What lines of Python print beside a file."""
    monkeypatch.chdir(folder)
    Path(name).write_text(text, "utf-8")
    shown = []
    exec(code, {"print": shown.append})
    return shown[0]


def test_a_table_is_predicted_as_by_the_lines_of_python(client, tmp_path, monkeypatch):
    name, text = post(client, "example", {"problem": "classification"}).json().values()
    header, *lines = text.splitlines()
    known, new = ([line for line in lines if line.endswith(",") is gap] for gap in (False, True))
    text = "\n".join([header, *known[::10], *new[::5]]) + "\n"  # 16 rows: one program serves all fits
    _, found = table(client, text)
    guessed = {column["name"]: column["problem"] for column in found["columns"]}
    assert found["target"] == "cultivar" and (guessed["cultivar"], guessed["hue"]) == ("classification", "regression")
    _, found = table(client, text, target="cultivar", problem="classification", name=name)
    assert (found["labelled"], found["predicted"], found["scores"]["held_out"]) == (16, 4, 4)
    assert all(score >= 0.75 for score in found["scores"]["metrics"][0][1:])
    expected = ran(found["code"], tmp_path, name, text, monkeypatch)
    np.testing.assert_allclose(expected, [row[2:] for row in found["rows"]], atol=1e-4)
    lines = found["csv"].splitlines()
    assert len(lines) == 5 and lines[0].endswith("cultivar,cultivar (predicted),P(class_0),P(class_1),P(class_2)")


def test_a_table_without_gaps_shows_the_rows_that_were_held_out(client, tmp_path, monkeypatch):
    x = np.random.default_rng(0).normal(size=(16, 2))
    text = "a,b,y\n" + "".join(f"{a:.4f},{b:.4f},{a - 2 * b:.4f}\n" for a, b in x)
    _, found = table(client, text, target="y", problem="regression")
    assert found["held_out_only"] and found["header"][:3] == ["row", "y", "y (predicted)"]
    assert found["scores"]["metrics"][0][1] > 0.8
    expected = ran(found["code"], tmp_path, "mine.csv", text, monkeypatch)
    np.testing.assert_allclose(expected[0], [row[2] for row in found["rows"]], atol=1e-3)


ROWS = "".join(f"{i},{i * i % 7},{'ab'[i % 2]}\n" for i in range(12))


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("", {}, "no rows below"),
        ("a,b\n1,2\n3\n", {}, "row 2 has 1 field for 2 columns"),
        ("1,2\n3,4\n", {}, "numbers instead of column names"),
        (b"\x89PNG\r\n\xff", {}, "expected a CSV file in UTF-8"),
        (f"x,y,c\n{ROWS}", {"target": "z", "problem": "regression"}, "has no column 'z'"),
        (f"x,y,c\n{ROWS}", {"target": "c", "problem": "regression"}, "'c' is 'a', not a number"),
        (f"x,y,c\n{ROWS}", {"target": "x", "problem": "classification"}, "12 classes in 12 rows"),
        ("x,y\n1,2\n3,4\n", {"target": "y", "problem": "regression"}, "at least 8"),
        (
            "x,c\n" + "".join(f"{i % 9},k{i % 101}\n" for i in range(202)),
            {"target": "c", "problem": "classification"},
            "at most 30",
        ),
        ("x,y\n" + "1,1\n" * 3001, {}, "takes 3,000 rows"),
        ("y\n" + "1\n" * 12, {"target": "y", "problem": "regression"}, "no inputs left"),
    ],
)
def test_a_bad_table_gets_a_clear_message(client, text, options, message):
    status, answer = table(client, text, **options)
    assert status == 400 and message in answer["error"] and "\n" not in answer["error"]


def test_other_forms_of_files_are_read_the_same_way_by_the_lines_of_python(client, tmp_path, monkeypatch):
    rows = [(f"{i},5", f"{i + 1:02}.05.2024", f"1.00{i % 4},5", "?" if i > 13 else f"{i % 3},5") for i in range(16)]
    text = "a;day;b;y\n" + "".join(";".join(row) + "\n" for row in rows)
    _, found = table(client, text, target="y", problem="regression")
    assert found["predicted"] == 2 and "decimal=','" in found["code"]
    expected = ran(found["code"], tmp_path, "mine.csv", text, monkeypatch)
    np.testing.assert_allclose(expected[0], [row[1] for row in found["rows"]], atol=1e-3)


def test_warnings_are_shown_once_and_large_tables_have_no_linear_model(client, monkeypatch):
    lines = [f"{i},text {i},{'red' if i % 4 < 2 else 'blue'},{'' if i > 20 else 'ab'[i % 2]}" for i in range(24)]
    text = "id,remark,colour,c\n" + "\n".join(lines) + "\n"
    monkeypatch.setattr(tables, "LINEAR_STEPS", 1)  # which does not converge
    _, found = table(client, text, target="c", problem="classification")
    hint, warning = found["notes"]
    assert "remove it from the file" in hint and "--drop" not in hint and "is left out" in warning
    assert found["scores"]["metrics"][0][2] is not None
    monkeypatch.setattr(tables, "MAX_LINEAR_ENTRIES", 20)
    _, found = table(client, text, target="c", problem="classification")
    assert [row[2] for row in found["scores"]["metrics"]] == [None, None]
    assert any("no logistic regression" in note for note in found["notes"])


def test_a_table_that_is_too_large_is_refused(client):
    status, answer = table(client, b"a" * (tables.MAX_BYTES + 1))
    assert status == 413 and "5 MB" in answer["error"]
