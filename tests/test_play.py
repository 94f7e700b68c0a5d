"""The server of `metafun play`: who may ask, what is refused, and that answers are those of the models."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from starlette.testclient import TestClient
from typer.testing import CliRunner

from metafun import MetaFunRegressor
from metafun.cli import app as cli
from metafun.errors import InvalidCheckpoint, InvalidConfig
from metafun.estimators.trained import open_trained
from metafun.model.task import Points
from metafun.play import exact, glyphs
from metafun.play.curves import MAX_POINTS, CurveModel
from metafun.play.glyphs import GlyphModel
from metafun.play.server import MAX_JSON_BYTES, Playground, make_app
from metafun.play.serving import bind
from metafun.tasks.curves import CurveTasks
from tools.play_page import FOLDER, static_files

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
    for points in ([[1]], [1], "x", [["a", "b"]], [[0, None]], [[0, 0]] * (MAX_POINTS + 1), [[float("inf"), 0]]):
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


def test_the_exact_process_is_that_of_known_hyperparameters():
    tasks = CurveTasks(lengthscale=(0.4, 0.4), noise=0.2)
    points = Points.of([[-1.0], [0.3], [1.2]], [[0.5], [-1.0], [2.0]])
    x = jnp.linspace(-2, 2, 9)[:, None]
    found = jax.jit(exact.exact_prediction(tasks))(points, x)
    expected = tasks.training().process(jax.random.key(1)).predict(points, x)
    np.testing.assert_allclose(found.mean, expected.mean, atol=1e-5)
    np.testing.assert_allclose(found.std, expected.std, atol=1e-5)


def test_functions_go_through_the_points(client, model):
    answer = post(client, "functions", {"model": "gp-rbf", "points": [[x, 1.0] for x in np.linspace(-1, 1, 12)]})
    functions = np.frombuffer(answer.content, "<f4").reshape(-1, 161)
    near, far = functions[:, 60:100], functions[:, -1]
    assert len(functions) == 6 and abs(near - 1).max() < 0.4 and far.std() > 0.1


def test_other_models_are_refused():
    for name in ("glyphs", "tables-regression"):
        with pytest.raises(InvalidCheckpoint, match="does not predict curves"):
            CurveModel(name, open_trained(name))


def test_a_port_in_use_is_an_error(monkeypatch):
    with bind(0) as taken:
        host, port = taken.getsockname()
        assert host == "127.0.0.1"
        with pytest.raises(InvalidConfig, match="is not free"):
            bind(port)
    monkeypatch.setattr("metafun.cli.play.find_spec", lambda name: None)
    result = CliRunner().invoke(cli, ["play"])
    assert result.exit_code == 2 and "pip install 'metafun[play]'" in result.stderr


def test_the_static_page_is_up_to_date():
    files = static_files()
    assert {path.name for path in FOLDER.iterdir()} == set(files), "run: python -m tools.play_page"
    for name, content in files.items():
        found = (FOLDER / name).read_bytes()
        if name == "info.json":
            # Processors differ in the last digit.
            (found,), (content,) = (json.loads(text)["curves"] for text in (found, content))
            drawn = [info.pop("exact").pop("processes") for info in (found, content)]
            np.testing.assert_allclose(*drawn, atol=1e-4)
        assert found == content, "run: python -m tools.play_page"


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
    for strokes in ([], [[]], "x", [[1]], [[["a", 1]]], [[[0, 0]] * 30_000], [[[float("nan"), 0]]]):
        assert post(client, "glyphs", {"strokes": strokes, "examples": []}).status_code == 400, str(strokes)[:40]
    for examples in (None, [1], [{"label": "a", "picture": "AAAA"}], [{}]):
        assert post(client, "glyphs", {"strokes": RING, "examples": examples}).status_code == 400, examples
    picture = post(client, "glyphs", {"strokes": RING, "examples": []}).json()["picture"]
    many = [{"label": str(i), "picture": picture} for i in range(11)]
    assert "at most" in post(client, "glyphs", {"strokes": RING, "examples": many}).json()["error"]
