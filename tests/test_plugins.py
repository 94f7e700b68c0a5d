"""Parts of one's own, registered in Python or by a file that --plugin names."""

import re
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pytest
from typer.testing import CliRunner

from examples import TINY
from metafun import config, schema
from metafun.cli import app
from metafun.config import PartConfig, load_config, load_plugin, register_part
from metafun.errors import InvalidCheckpoint, InvalidConfig
from metafun.estimators.trained import open_trained

TUTORIAL = Path(__file__).parent.parent / "docs" / "tutorials" / "new-pooling.md"


def forget() -> None:
    schema._added.clear()
    config.plugins._registered.clear()
    schema._hints.cache_clear()


@pytest.fixture(autouse=True)
def forgotten():
    """What a test registers is forgotten after it."""
    yield
    forget()


@pytest.fixture
def plugin(tmp_path):
    """The file that the tutorial says to save."""
    blocks = re.findall(r"```python\n(.*?)```", TUTORIAL.read_text("utf-8"), re.DOTALL)
    (tmp_path / "my_pooling.py").write_text("\n".join(blocks[:2]).replace('"laplace"', '"mine"'), "utf-8")
    return tmp_path / "my_pooling.py"


def metafun(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def test_a_plugin_trains_and_its_checkpoint_needs_it(plugin, tmp_path):
    run, settings = tmp_path / "run", [part for setting in TINY for part in ("--set", setting)]
    changed = ("--set", "model.pooling=mine", "--set", "training.steps=20")
    trained = metafun("train", "sinusoid", "--out", run, *settings, "--plugin", plugin, *changed)
    assert trained.exit_code == 0, trained.output
    assert load_config(str(run / "config.toml")).model.pooling.width == 8
    shutil.copy(run / "checkpoint.safetensors", alone := tmp_path / "alone.safetensors")

    forget()
    remedy = "name its file with --plugin; in Python, import it first."
    for command in (("evaluate", run), ("plot", alone, "--step-by-step")):
        refused = metafun(*command)
        assert refused.exit_code == 2 and refused.stderr.count("\n") == 1 and remedy in refused.stderr
        assert "pooling.kind = 'mine' is not known" in refused.stderr and "damaged" not in refused.stderr
    with pytest.raises(InvalidCheckpoint, match="import it first"):
        open_trained(alone)

    assert metafun("evaluate", run, "--tasks", 20, "--plugin", plugin).exit_code == 0
    assert open_trained(alone).experiment.config.model.pooling.kind == "mine"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x = 1", r"registers no part; end it with register_part\("),
        ("x = 1\nx = y\n", r"plugin\.py, line 2: NameError: name 'y' is not defined"),
        ("def f(:\n", r"plugin\.py: SyntaxError: "),
        (
            "from metafun.config import register_part as r\nr('model.poling', 3)",
            r"plugin\.py: no part can be .* did you",
        ),
    ],
)
def test_a_plugin_with_a_mistake(text, message, tmp_path):
    (tmp_path / "plugin.py").write_text(text)
    with pytest.raises(InvalidConfig, match=message):
        load_plugin(tmp_path / "plugin.py")


def test_the_line_of_a_mistake_in_a_relative_path(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("part.py").write_text("x = 1\nx = y\n")
    with pytest.raises(InvalidConfig, match=r"^part\.py, line 2: NameError"):
        load_plugin(Path("part.py"))


def test_two_plugins_with_one_file_name(plugin, tmp_path):
    (tmp_path / "other").mkdir()
    other = tmp_path / "other" / plugin.name
    other.write_text(plugin.read_text("utf-8").replace('"mine"', '"yours"'), "utf-8")
    for path in (plugin, other):
        load_plugin(path)
    kinds = [load_config("sinusoid", [f"model.pooling={kind}"]).model.pooling for kind in ("mine", "yours")]
    assert all(vars(sys.modules[type(kind).__module__])[type(kind).__name__] is type(kind) for kind in kinds)


def test_what_is_no_plugin(tmp_path):
    with pytest.raises(InvalidConfig, match="is no plugin; expected a Python file"):
        load_plugin(tmp_path / "missing.py")


@dataclass(frozen=True)
class Named(PartConfig):
    kind: Literal["attention"] = "attention"

    def build(self, sizes, key):
        raise NotImplementedError


@dataclass(frozen=True)
class Nameless:
    build = None


@pytest.mark.parametrize(
    ("part", "message"),
    [
        (Named, "model.pooling.kind = 'attention' exists already; choose another name for that of Named"),
        (Nameless, "Nameless has no kind; give it the field kind"),
        (Path, "Path is not a part: it must be a frozen dataclass with a method build"),
    ],
)
def test_what_cannot_be_registered(part, message):
    with pytest.raises(InvalidConfig, match=re.escape(message)):
        register_part("model.pooling", part)


def test_a_class_may_be_defined_again(plugin):
    load_plugin(plugin)
    plugin.write_text(plugin.read_text("utf-8").replace("width: int = 16", "width: int = 12"), "utf-8")
    load_plugin(plugin)
    assert load_config("sinusoid", ["model.pooling=mine"]).model.pooling.width == 12
