"""Presets, TOML files and settings: read, checked, written back."""

import re
import tomllib
from typing import get_args

import jax
import pytest

from metafun.config import Experiment, load_config, parse_config, presets, resolve
from metafun.errors import InvalidConfig
from metafun.model.nn import ACTIVATIONS, count_parameters
from metafun.schema import to_table
from metafun.values import Activation


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
    assert count_parameters(resolve(load_config(preset)).build_model(jax.random.key(0))) == parameters


def test_the_papers_training_is_what_the_paper_says():
    paper = load_config("sinusoid-paper")
    assert (paper.training.batch, paper.training.steps, paper.training.learning_rate) == (16, 100_000, 1e-4)
    assert paper.training.schedule == "constant"
    assert (paper.model.iterations, paper.model.representation, paper.model.step_size) == (5, 128, 0.1)
    assert (paper.tasks.context, paper.tasks.points) == ((1, 9), 10)


@pytest.mark.parametrize("heads_first", [False, True])
def test_a_part_may_be_given_by_its_kind_alone(heads_first, tmp_path):
    settings = ["model.pooling=deep-kernel", "model.pooling.heads=2"]
    config = load_config("gp-stochastic", [*(reversed(settings) if heads_first else settings), "model.latent=none"])
    assert (config.model.pooling.kind, config.model.pooling.heads) == ("deep-kernel", 2)
    assert config.model.latent.kind == "none"
    same = load_config("sinusoid", ["model.pooling=attention"])
    assert same == load_config("sinusoid"), "the kind that it has keeps its settings"
    (tmp_path / "mine.toml").write_text('base = "sinusoid"\nembedding = "none"\n[model]\npooling = "mean"\n')
    assert load_config(str(tmp_path / "mine.toml")).model.pooling.kind == "mean"


def test_a_file_that_does_not_exist():
    with pytest.raises(InvalidConfig, match=r"there is no file sinusoid\.toml\. The preset is called sinusoid\."):
        load_config("sinusoid.toml")
    with pytest.raises(InvalidConfig, match=r"unknown preset 'xyz'; `metafun info` lists all of them\."):
        load_config("xyz")


def test_a_whole_number_may_have_an_exponent():
    assert type(load_config("sinusoid", ["training.steps=1e5"]).training.steps) is int


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("training.stepz=1", "unknown key 'training.stepz'; did you mean 'steps'"),
        ("trainig.steps=1", "unknown key 'trainig'; did you mean 'training'?"),
        ("learning_rate=0.1", "unknown key 'learning_rate'; did you mean 'training.learning_rate'?"),
        ("learnin_rate=0.1", "unknown key 'learnin_rate'; did you mean 'training.learning_rate'"),
        ("model.layers=2", "unknown key 'model.layers'; did you mean 'model.decoder.layers' or 'model.initial.layers'"),
        ("model.pooling=deep_kernel", "model.pooling.kind = 'deep_kernel' is not known; did you mean 'deep-kernel'?"),
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
        ("training.seeds=3", "training.seeds = 3, but it must be a list, like [1, 2]."),
        ("training.seeds=[]", "training.seeds = []; name at least one seed"),
        ("training.seeds=[1,1]", "training.seeds = [1, 1]; name at least one seed, and none twice"),
        ("training.seeds=[4294967296]", "training.seeds[0] = 4294967296, but it must be between 0 and"),
        ("training.seeds=[-1]", "training.seeds[0] = -1, but it must be between 0 and"),
        ("training.chunk=300", "training.validate_every = 5000 must be a multiple of training.chunk = 300"),
        ("training=3", "training = 3, but it must be a table of keys."),
        ("tasks.context=[1]", "tasks.context = [1], but it must have 2 entries."),
        ("tasks.context=[5,2]", "tasks.context = [5, 2]: the lower bound comes first."),
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
        ("training.steps", "'training.steps' must have the form key=value"),
        ("model.pooling.heads=3", "model.pooling.width = 128 cannot be divided among model.pooling.heads = 3."),
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
    with pytest.raises(InvalidConfig, match="there is no file"):
        load_config(str(tmp_path / "missing.toml"))


def test_patience_without_validation_is_refused():
    with pytest.raises(InvalidConfig, match=r"training\.validate_every is 0"):
        load_config("sinusoid", ["training.validate_every=0", "training.patience=3"])


def test_a_file_builds_on_its_neighbour(tmp_path):
    (tmp_path / "below.toml").write_text('base = "sinusoid"\n[training]\nsteps = 7\n')
    (tmp_path / "above.toml").write_text('base = "below.toml"\n')
    assert load_config(str(tmp_path / "above.toml")).training.steps == 7


def test_changes_are_taken_as_they_are():
    """A value that only looks like TOML stays text."""
    assert load_config("features", changes={"tasks.data": "2024"}).tasks.data == "2024"


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


def test_a_configuration_of_any_size_is_checked_without_memory(monkeypatch):
    """Shapes are inferred, not allocated: a hostile file cannot take the machine down at loading."""
    settings = ["model.update.width=65536", "model.update.layers=50"]
    with pytest.raises(InvalidConfig, match=r"model\.update\.width = 65,536 gives 2.*e\+11 parameters in a model"):
        load_config("sinusoid", settings)
    monkeypatch.setenv("METAFUN_LIMIT_FACTOR", "1e6")
    load_config("sinusoid", settings)


PAPER_CLASSIFIERS = [f"{d}-{p}-{k}shot" for d in ("mini", "tiered") for p in ("dfp", "kfp") for k in (1, 5)]


@pytest.mark.parametrize("preset", PAPER_CLASSIFIERS)
def test_classifiers_of_the_paper_are_within_the_ranges_it_searched(preset):
    """Table 4; the outer learning rate is uniform in (1, 10)·1e-5, and m, u₊, u₋ are as wide as r."""
    config = load_config(preset)
    model, training = config.model, config.training
    assert 2 <= model.iterations <= 6 and 2 <= model.update.layers <= 3 and 1 <= model.pooling.layers <= 2
    assert model.representation == model.update.width and model.update.width in (64, 128)
    assert model.pooling.kind == {"dfp": "attention", "kfp": "deep-kernel"}[preset.split("-")[1]]
    assert 1e-5 <= training.learning_rate <= 1e-4 and model.step_size in (0.1, 1.0, 10.0)
    assert 0 <= model.decoder.dropout <= 0.5 and model.loss.label_smoothing in (0.0, 0.1, 0.2)
    assert 1e-4 <= model.orthogonality <= 1e-2 and 1e-10 <= model.l2 <= 1e-8
    assert not model.decoder.bias and config.tasks.noise == 0 and model.context_weight == 0
    if model.initial.kind == "parametric":
        expected = (model.update.width, model.update.layers, model.decoder.dropout)
        assert (model.initial.width, model.initial.layers, model.initial.dropout) == expected
    assert config.tasks.shots == int(preset[-5]) and (config.tasks.ways, config.tasks.queries) == (5, 15)
    assert (training.batch, training.validate_every, training.validation_tasks) == (12, 200, 1000)


@pytest.mark.parametrize("preset", [*PAPER_CLASSIFIERS, "mini-1shot", "mini-5shot"])
def test_multiview_differs_in_the_data_alone(preset):
    center, multiview = load_config(preset), load_config(f"{preset}-multiview")
    assert center.tasks.data.replace("center", "multiview") == multiview.tasks.data != center.tasks.data
    assert load_config(preset, [f"tasks.data={multiview.tasks.data}"]) == multiview


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("model.update.kind=mlp", "model.update.kind = 'mlp' is for regression, but model.loss.kind = 'cross-entropy'"),
        ("model.decoder.kind=conditioned", "model.decoder.kind = 'conditioned' is for regression"),
        (
            "model.decoder.kind=logits",
            "decoder 'logits' predicts rᵏ itself, a scalar for each class: model.representation",
        ),
        ("model.loss.kind=gaussian", "tasks.kind = 'episodes' is classification, but model.loss.kind = 'gaussian'"),
        ("tasks.kind=sinusoid", "tasks.kind = 'sinusoid' is regression, but model.loss.kind = 'cross-entropy'"),
        ("model.decoder.dropout=1.0", "model.decoder.dropout = 1.0, but it must be between 0 and 0.999"),
        ("tasks.ways=1", "tasks.ways = 1, but it must be between 2 and"),
        ("tasks.train_on=[]", "tasks.train_on = []; it must name splits, none of them twice"),
        ('tasks.train_on=["trian"]', "tasks.train_on[0] = 'trian' is not known; did you mean 'train'?"),
        ('tasks.train_on=["test"]', "tasks.train_on[0] = 'test' is not known"),
        ("training.stop=5000", "training.stop = 5000 exceeds training.steps = 200."),
    ],
)
def test_a_bad_setting_of_a_classifier_is_refused(setting, message):
    with pytest.raises(InvalidConfig, match="^" + re.escape(message)):
        load_config("features", [setting])


def test_a_penalty_on_weights_that_are_not_there_is_refused():
    settings = ["model.decoder.kind=logits", "model.representation=1", "model.orthogonality=0.1"]
    with pytest.raises(InvalidConfig, match=r"model\.orthogonality is a penalty on the decoder 'softmax-weights'"):
        load_config("features", settings)


def test_a_model_for_features_not_yet_known_is_not_built():
    with pytest.raises(InvalidConfig, match=r"tasks\.features is not known before the data are read"):
        Experiment(load_config("features")).build_model(jax.random.key(0))


def test_ways_are_for_classification():
    config = load_config("sinusoid", ["evaluation.ways=[5]"])
    with pytest.raises(InvalidConfig, match=r"evaluation\.ways is for episodes"):
        next(resolve(config).test_tasks())


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("tasks.lengthscale=[2.0,1.0]", "tasks.lengthscale = [2.0, 1.0]: the lower bound comes first."),
        ("tasks.points=30", "tasks.points = 30 leaves fewer than 20 targets beside 20 context points."),
        ("tasks.kernel=rbff", "tasks.kernel = 'rbff' is not known; did you mean 'rbf'"),
    ],
)
def test_a_bad_setting_of_curves_is_refused(setting, message):
    with pytest.raises(InvalidConfig, match="^" + re.escape(message)):
        load_config("gp", [setting])


def test_the_protocol_of_neural_processes():
    """Lee et al. (2020): ℓ ∼ U(0.1, 0.6), s ∼ U(0.1, 1), noise 0.02, 3 to 46 context points, at most 50 in all."""
    for name, kernel in (("gp-bnp", "rbf"), ("gp-bnp-matern", "matern52")):
        tasks = load_config(name).tasks
        assert (tasks.kernel, tasks.lengthscale, tasks.scale) == (kernel, (0.1, 0.6), (0.1, 1.0))
        assert (tasks.noise, tasks.inputs, tasks.context, tasks.points) == (0.02, (-2.0, 2.0), (3, 46), 50)
