"""Imports go down only: the floors of the house, from the command line to the ground."""

import ast
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent.parent / "src" / "metafun"

FLOORS = [
    {"cli"},
    {"__init__"},
    {"plots", "protocol", "report"},
    {"bench"},
    {"estimators"},
    {"search", "paper", "own", "progress", "trained"},
    {"runs"},
    {"training", "evaluation", "checkpoint"},
    {"config"},
    {"columns", "convnet"},
    {"stochastic", "embedding"},
    {"model", "tasks", "baselines"},
    {"regularisers", "data", "gp"},
    {"initial", "pooling", "updates", "decoders"},
    {"learner"},
    {"likelihoods"},
    {"task", "nn", "devices", "schema", "files", "frames", "padding"},
    {"errors"},
]
FLOOR = {room: floor for floor, rooms in enumerate(FLOORS) for room in rooms}


def room(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def imported_rooms(path: Path) -> set[str]:
    here = path.relative_to(SOURCE).parts
    rooms = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.level:
            inside = here[: len(here) - node.level]
            target = (*inside, *(node.module or "").split(".")) if node.module else inside
            names = [target[0]] if target else [alias.name for alias in node.names]
            rooms |= {name if name in FLOOR else "__init__" for name in names}
    return rooms


@pytest.mark.parametrize("path", sorted(SOURCE.rglob("*.py")), ids=lambda path: str(path.relative_to(SOURCE)))
def test_imports_go_down(path):
    for other in imported_rooms(path) - {room(path)}:
        assert FLOOR[other] > FLOOR[room(path)], f"{room(path)} must not import {other}"


def test_the_test_can_fail():
    """It sees the imports it is there to judge."""
    assert {"decoders", "initial", "likelihoods", "pooling", "task", "updates"} <= imported_rooms(SOURCE / "model.py")
    assert imported_rooms(SOURCE / "tasks" / "sinusoid.py") == {"task", "tasks"}
