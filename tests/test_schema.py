"""Renamed settings, whose former names still work with a warning; the documentation of settings."""

import dataclasses
import warnings
from dataclasses import dataclass, replace
from typing import Literal

import pytest
import tomli_w

from metafun.config import Config, Experiment, decoders, load_config, load_space, parse_config, parts, with_changes
from metafun.config.baselines import LEOConfig
from metafun.errors import InvalidConfig
from metafun.paper.items import plan
from metafun.schema import UNSET, current_name, current_names, flatten, merge, nested, parse, to_table
from tools.report.records import changed_settings
from tools.settings_reference import descriptions

renamed = pytest.warns(FutureWarning, match=r"model\.stay is now model\.encoder_penalty")


@dataclass(frozen=True)
class Inner:
    kind: Literal["inner"] = "inner"
    new: int = 1

    renamed = {"old": "new"}  # noqa: RUF012


@dataclass(frozen=True)
class Other:
    kind: Literal["other"] = "other"
    old: int = 1


@dataclass(frozen=True)
class Outer:
    part: Inner | Other = Inner()


def test_a_former_name_is_parsed_with_a_warning():
    with pytest.warns(FutureWarning, match=r"part\.old is now part\.new; please use the new name"):
        assert parse(Outer, {"part": {"kind": "inner", "old": 5}}) == Outer(Inner(new=5))


def test_a_former_name_beside_the_current_one_is_refused():
    with pytest.raises(InvalidConfig, match=r"part\.old is the former name of part\.new, but both are given; drop"):
        parse(Outer, {"part": {"kind": "inner", "old": 5, "new": 6}})


def test_a_name_that_another_kind_still_has_stays():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert current_names(Outer, {"part": {"kind": "other", "old": 5}}) == {"part": {"kind": "other", "old": 5}}
        assert current_name(Outer, "part.old") == "part.old", "without its kind it may be either"
        assert parse(Outer, {"part": {"kind": "other", "old": 5}}) == Outer(Other(old=5))


def test_a_former_name_replaces_the_value_below_it():
    with pytest.warns(FutureWarning):
        over = current_names(Outer, {"part": {"kind": "inner", "old": 5}})
    assert parse(Outer, merge(to_table(Outer()), over)) == Outer(Inner(new=5))


def test_the_original_names_are_those_before_renaming():
    assert to_table(Outer(Inner(new=5)), original=True) == {"part": {"kind": "inner", "old": 5}}


@dataclass(frozen=True)
class Extended:
    old: int = 1
    later: str = "as before"

    added = {"later": "as before"}  # noqa: RUF012


def test_the_original_table_leaves_out_an_added_field_unless_it_changes_the_behaviour():
    assert to_table(Extended(), original=True) == {"old": 1}
    assert to_table(Extended(later="new"), original=True) == {"old": 1, "later": "new"}
    assert to_table(Extended()) == {"old": 1, "later": "as before"}


@pytest.mark.parametrize("key", ["training.clip", "training.patience", "evaluation.shots", "embedding", "vary"])
def test_none_unsets_an_optional_setting(key, tmp_path):
    given = {
        "training.clip": 1.0,
        "training.patience": 3,
        "evaluation.shots": [2],
        "vary": {"training.learning_rate": [0.1, 0.2]},
    }
    preset = "omniglot-5way-1shot" if key == "embedding" else "sinusoid-paper"
    config = load_config(preset, changes={key: given[key]} if key in given else None)
    assert key in {k[: len(key)] for k in flatten(to_table(config))}
    assert key not in {k[: len(key)] for k in flatten(to_table(with_changes(config, {key: UNSET})))}
    (tmp_path / "below.toml").write_text(config.to_toml())
    (tmp_path / "mine.toml").write_text('base = "below.toml"\n' + tomli_w.dumps(nested(key, UNSET)))
    assert load_config(str(tmp_path / "mine.toml")) == load_config(str(tmp_path / "below.toml"), [f"{key}=none"])


@pytest.mark.parametrize(
    "key", ["training.steps", "model.pooling", "training", "training.seeds", "model.per_iteration"]
)
def test_none_is_refused_for_a_setting_that_is_not_optional(key):
    with pytest.raises(InvalidConfig, match=rf"{key} = 'none' unsets a setting, but this one is not optional; give"):
        load_config("sinusoid", [f"{key}=none"])


def test_none_may_be_a_name_or_a_kind():
    assert load_config("features", ["tasks.data=none"]).tasks.data == "none"
    assert load_config("gp-stochastic", ["model.latent.kind=none"]).model.latent.kind == "none"
    with pytest.raises(InvalidConfig, match=r"training.schedule = 'none' is not known; did you mean 'cosine'"):
        load_config("sinusoid", ["training.schedule=none"])


def test_a_command_says_what_the_preset_has_and_the_recorded_run_had_not():
    recorded = load_config("sinusoid", ["training.clip=none", "training.batch=8"])
    current = load_config("sinusoid")
    assert changed_settings(recorded.to_toml(), current) == " --set training.batch=8 --set training.clip=none"
    before = "\n".join(line for line in recorded.to_toml().splitlines() if not line.startswith("keep"))
    assert "--set training.keep=best" in changed_settings(before, current)


def test_settings_and_files_may_use_the_former_name(tmp_path):
    preset = "leo-mini-1shot"
    expected = load_config(preset, ["model.encoder_penalty=0.5"])
    with renamed:
        assert load_config(preset, ["model.stay=0.5"]) == expected
    with renamed:
        assert with_changes(load_config(preset), {"model.stay": 0.5}) == expected
    path = tmp_path / "mine.toml"
    path.write_text(f'base = "{preset}"\n[model]\nstay = 0.5\n')
    with renamed:
        assert load_config(str(path)) == expected
    with pytest.raises(InvalidConfig, match=r"model\.stay is the former name of model\.encoder_penalty"):
        load_config(preset, ["model.stay=0.5", "model.encoder_penalty=0.5"])


def test_variants_and_search_spaces_may_use_the_former_name(tmp_path):
    config = load_config("leo-mini-1shot")
    with renamed:
        varied = with_changes(config, {"vary": {"model.stay": [0.1, 0.2]}})
    assert [variant.config.model.encoder_penalty for variant in Experiment(varied).variants] == [0.1, 0.2]
    path = tmp_path / "space.toml"
    path.write_text('["model.stay"]\nuniform = [0.1, 0.2]\n["model.kl"]\nuniform = [0.1, 0.2]\nalso = ["model.stay"]\n')
    with renamed:
        space = load_space(str(path), config)
        assert set(space.ranges) == {"model.encoder_penalty", "model.kl"}
        assert space.configure({"model.kl": 0.15}).model.encoder_penalty == 0.15
        assert set(load_space(str(path), config, ["model.stay"]).ranges) == {"model.kl"}


def test_a_configuration_written_before_the_renaming_is_read():
    config = load_config("leo-mini-1shot")
    with renamed:
        assert parse_config(to_table(config, original=True)) == config


def test_a_renaming_does_not_forget_measured_results():
    """results/paper.jsonl has LEO's first cells under the key that their configuration had before the renaming."""
    job = plan(["table2"], only="LEO", data={"miniimagenet-center": "miniimagenet_wrn28_center"})[0]
    first = with_changes(job.config, {"training.steps": 8000, "training.patience": 10})
    assert replace(job, config=first).key == "3f639c79d98a"


def test_every_former_name_leads_to_a_field():
    names = {field.name for field in dataclasses.fields(LEOConfig)}
    assert set(LEOConfig.renamed.values()) <= names and not set(LEOConfig.renamed) & names
    assert current_name(Config, "training.steps") == "training.steps"


def test_the_documentation_of_a_subclass_wins():
    assert descriptions(parts.MLPUpdateConfig)["layers"] == "number of hidden layers."
    assert descriptions(decoders.ConditionedConfig)["layers"] == "number of layers of f, the last one linear."
