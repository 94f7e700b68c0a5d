"""Presets, TOML files and settings: read, checked, written back."""

import re
import tomllib
from typing import get_args

import jax
import pytest

from metafun.config import load_config, parse_config, presets
from metafun.config.values import Activation
from metafun.errors import InvalidConfig
from metafun.nn import ACTIVATIONS, count_parameters
from metafun.schema import to_table


@pytest.mark.parametrize("preset", presets())
def test_presets_survive_the_way_to_toml_and_back(preset):
    config = load_config(preset)
    assert parse_config(tomllib.loads(config.to_toml())) == config


@pytest.mark.parametrize(
    ("preset", "parameters"),
    # Attention has the paper's count; a kernel adds its scale and its length.
    [
        ("demo", 116_611),
        ("sinusoid", 116_611),
        ("sinusoid-paper", 116_611),
        ("sinusoid-kfp", 116_613),
        ("sinusoid-paper-kfp", 116_613),
    ],
)
def test_presets_have_the_papers_size(preset, parameters):
    assert count_parameters(load_config(preset).build_model(jax.random.key(0))) == parameters


def test_the_papers_training_is_what_the_paper_says():
    paper = load_config("sinusoid-paper")
    assert (paper.training.batch, paper.training.steps, paper.training.learning_rate) == (16, 100_000, 1e-4)
    assert paper.training.schedule == "constant"
    assert (paper.model.iterations, paper.model.representation, paper.model.step_size) == (5, 128, 0.1)
    assert (paper.tasks.context, paper.tasks.points) == ((1, 9), 10)


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("training.stepz=1", "unknown key 'training.stepz'; did you mean 'steps'"),
        ("trainig.steps=1", "unknown key 'trainig'; did you mean 'training'?"),
        ("training.steps=0", "training.steps = 0, but it must be between 1 and"),
        ("training.steps=1.5", "training.steps = 1.5, but it must be of type int."),
        ("training.steps=true", "training.steps = True, but it must be of type int."),
        ("training.learning_rate=fast", "training.learning_rate = 'fast', but it must be of type float."),
        ("training.learning_rate=nan", "training.learning_rate = nan, but it must be between 0 and"),
        ("training.learning_rate=inf", "training.learning_rate = inf, but it must be between 0 and"),
        ("training.learning_rate=1" + "0" * 400, "training.learning_rate = 1000"),
        ("training.steps=1" + "0" * 30, "training.steps = 1000"),
        ("training.steps=" + "9" * 5000, "training.steps = '9999"),
        ("training.steps=" + "[" * 5000, "training.steps = '[[["),
        ("training.steps=20\nfoo=3", "training.steps = '20\\nfoo=3'"),
        ("model.pooling.kind=[1]", "model.pooling.kind = [1] is not known"),
        ("model.decoder.share=2.0", "model.decoder.share = 2.0, but it must be between 0 and 1."),
        ("model.update.layers=1000000000", "model.update.layers = 1000000000, but it must be between 1 and 100."),
        ("model.loss.min_std=2", "model.loss.min_std = 2, but it must be between 0 and 1."),
        ("training.seeds=3", "training.seeds = 3, but it must be a list."),
        ("training.seeds=[]", "training.seeds = [], but it must name at least one seed"),
        ("training.seeds=[1,1]", "training.seeds = [1, 1], but it must name at least one seed, and none twice"),
        ("training.seeds=[4294967296]", "training.seeds[0] = 4294967296, but it must be between 0 and"),
        ("training.seeds=[-1]", "training.seeds[0] = -1, but it must be between 0 and"),
        ("training.chunk=300", "training.validate_every = 5000 must be a multiple of training.chunk = 300"),
        ("training=3", "training = 3, but it must be a table of keys."),
        ("tasks.context=[1]", "tasks.context = [1], but it must have 2 entries."),
        ("tasks.context=[5,2]", "tasks.context = [5, 2], but the least comes first."),
        ("tasks.points=7", "tasks.points = 7 leaves no target beside 10 context points."),
        ("model.activation=rellu", "model.activation = 'rellu' is not known; did you mean 'relu'"),
        (
            "model.pooling.kind=atention",
            "model.pooling.kind = 'atention' is not known; did you mean 'attention'?",
        ),
        (
            "model.decoder.kind=identity",
            "decoder 'identity' predicts r itself, (μ, s): model.representation must be 2",
        ),
        ("training.steps", "--set 'training.steps' must have the form key=value"),
    ],
)
def test_a_bad_setting_is_refused_with_its_path(setting, message):
    with pytest.raises(InvalidConfig, match="^" + re.escape(message)):
        load_config("sinusoid", [setting])


def test_an_unknown_preset_suggests_the_nearest():
    with pytest.raises(InvalidConfig, match="unknown preset 'sinsoid'; did you mean 'sinusoid'"):
        load_config("sinsoid")


@pytest.mark.parametrize(("content", "message"), [(b"a = ", "not valid TOML"), (b"\xff\xfe", "cannot read")])
def test_a_broken_file_is_refused(tmp_path, content, message):
    path = tmp_path / "broken.toml"
    path.write_bytes(content)
    with pytest.raises(InvalidConfig, match=message):
        load_config(str(path))
    with pytest.raises(InvalidConfig, match="cannot read"):
        load_config(str(tmp_path / "missing.toml"))


def test_a_file_builds_on_a_preset(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text('base = "sinusoid"\n[training]\nsteps = 7\n')
    assert load_config(str(path)) == load_config("sinusoid", ["training.steps=7"])


def test_another_kind_brings_its_own_defaults():
    config = load_config("sinusoid", ["model.pooling.kind=squared-exponential"])
    assert to_table(config.model.pooling) == {"kind": "squared-exponential", "scale": 1.0, "lengthscale": 1.0}


def test_the_order_of_settings_does_not_matter():
    settings = ["model.pooling.width=8", "model.pooling.kind=deep-kernel"]
    a, b = load_config("sinusoid", settings), load_config("sinusoid", settings[::-1])
    assert a == b and a.model.pooling.width == 8


@pytest.mark.parametrize(
    ("content", "message"),
    [("base = 5", "base = 5, but it must be the name"), ('base = "PATH"', "builds on itself"), ('base = "no"', "'no'")],
)
def test_a_bad_base_is_refused(tmp_path, content, message):
    path = tmp_path / "mine.toml"
    path.write_text(content.replace("PATH", str(path)))
    with pytest.raises(InvalidConfig, match=message):
        load_config(str(path))


def test_all_activations_can_be_chosen():
    assert set(get_args(Activation)) == set(ACTIVATIONS)


def test_a_configuration_of_any_size_is_checked_without_memory():
    """Shapes are inferred, not allocated: a hostile file cannot take the machine down at loading."""
    load_config("sinusoid", ["model.update.width=1000000", "model.update.layers=50"])
