"""The settings reference lists every field of every configuration class, with what the class says about it."""

import dataclasses
from dataclasses import dataclass
from typing import Annotated, Literal, get_type_hints

import pytest

from metafun.config import Config, load_config, presets
from metafun.schema import Between, flatten, to_table
from tools.settings_reference import describe_type, descriptions, render, sections


def test_every_field_appears_exactly_once():
    found = list(sections())
    assert len({(section.path, section.cls) for section in found}) == len(found)
    for section in found:
        fields = [field.name for field in dataclasses.fields(section.cls) if field.name != "kind"]
        assert [setting.path.split(".")[-1] for setting in section.settings] == fields
        assert all(setting.type and setting.default for setting in section.settings)


def test_every_setting_of_every_preset_is_there():
    known = {setting.path for section in sections() for setting in section.settings}
    for preset in presets():
        settings = flatten(to_table(load_config(preset)))
        assert {path for path in settings if not path.endswith("kind") and not path.startswith("vary.")} <= known


def test_every_table_class_has_a_section():
    classes = {section.cls for section in sections()}
    config = Config()
    assert {type(getattr(config, name)) for name in ("model", "tasks", "training", "evaluation")} <= classes
    assert {get_type_hints(cls)["kind"].__args__[0] for cls in classes if "kind" in get_type_hints(cls)} >= {
        *("metafun", "maml", "leo", "attention", "deep-kernel", "classwise", "cross-entropy", "convnet", "columns"),
        *("sinusoid", "curves", "episodes", "collected", "any-table", "any-curve"),
    }


def test_rows_show_bounds_choices_and_defaults():
    page = render()
    assert "| `model.iterations` | integer, 0 to 100 | `5` |" in page
    assert '| `training.schedule` | `constant` or `cosine` | `"cosine"` |' in page
    assert "| `training.seeds` | list of (integer, 0 to 2^32 − 1) | `[0]` |" in page
    assert "| `training.patience` | integer, 1 to 2^31 − 1; optional | none |" in page
    assert "| `model.initial` | table of kind `zero` or `constant` or `parametric` | kind `zero` |" in page
    assert "\n## `model.pooling`, kind `deep-kernel`\n" in page


@pytest.mark.parametrize(
    ("hint", "words"),
    [
        (Annotated[float, Between(0, 0.5)], "number, 0 to 0.5"),
        (bool, "`true` or `false`"),
        (
            tuple[Annotated[int, Between(1, 9)], Annotated[int, Between(1, 9)]] | None,
            "list of 2 (integer, 1 to 9); optional",
        ),
        (dict[str, tuple[float, ...]], "table of (list of (number))"),
        (Literal["a", "b"], "`a` or `b`"),
    ],
)
def test_types_in_words(hint, words):
    assert describe_type(hint) == words


@dataclass
class Base:
    """A base class.

    Args:
        size: number of units
            in each layer.
        low, high: ends of the range.
    """

    size: int = 1
    low: int = 0
    high: int = 1


@dataclass
class Derived(Base):
    """A class with one more field.

    Args:
        rate: a share, 0: none.

    The text after the arguments is not a description.
    """

    rate: float = 0.0


def test_descriptions_come_from_the_docstring_and_from_base_classes():
    assert descriptions(Derived) == {
        "size": "number of units in each layer.",
        "low": "ends of the range.",
        "high": "ends of the range.",
        "rate": "a share, 0: none.",
    }


def test_every_setting_has_a_description():
    undocumented = [
        f"{section.cls.__name__}.{setting.path.split('.')[-1]}"
        for section in sections()
        for setting in section.settings
        if not setting.description
    ]
    assert not undocumented, f"describe in Args: {', '.join(undocumented)}"
