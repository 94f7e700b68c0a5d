"""The folder tree is the map: imports between rooms go down only, from the command line to the ground."""

import ast
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent.parent / "src" / "metafun"

FLOORS = [
    {"cli", "__main__"},
    {"paper", "bench", "play"},
    {"estimators", "plots"},
    {"training"},
    {"config"},
    {"baselines", "embeddings", "tasks"},
    {"data", "model"},
    {"values"},
    {"schema", "files"},
    {"errors", "__init__"},  # `__init__` imports a name only when it is used; what it defines is the version
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


MODULES = sorted(path for path in SOURCE.rglob("*.py") if path != SOURCE / "__init__.py")


def absolute_imports(path: Path) -> list[str]:
    """Imports of metafun by its name, which `imported_rooms` does not see."""
    nodes = [node for node in ast.walk(ast.parse(path.read_text("utf-8"))) if isinstance(node, ast.Import)]
    names = [alias.name for node in nodes for alias in node.names]
    froms = [n for n in ast.walk(ast.parse(path.read_text("utf-8"))) if isinstance(n, ast.ImportFrom) and not n.level]
    return [name for name in [*names, *(node.module for node in froms)] if name.split(".")[0] == "metafun"]


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_imports_go_down(path):
    assert not absolute_imports(path)
    for other in imported_rooms(path) - {room(path)}:
        assert FLOOR[other] > FLOOR[room(path)], f"{room(path)} must not import {other}"


def test_the_tree_is_a_map():
    rooms = {
        path.name.removesuffix(".py") for path in SOURCE.iterdir() if path.suffix == ".py" or any(path.glob("*.py"))
    }
    assert len(FLOORS) <= 10 and set(FLOOR) == rooms
    assert len(list(SOURCE.glob("*.py"))) <= 6, "modules outside a package"


def test_files_and_functions_stay_short():
    for path in MODULES:
        text = path.read_text("utf-8")
        assert text.count("\n") <= 350, path
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef):
                assert node.end_lineno - node.lineno < 45, f"{path}: {node.name}"


def test_the_test_can_fail():
    """It sees the imports it is there to judge."""
    assert imported_rooms(SOURCE / "tasks" / "sinusoid.py") >= {"model", "tasks"}
