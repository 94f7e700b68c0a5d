"""Compiled programs are kept in the user's cache, unless the user has chosen otherwise."""

import jax
import platformdirs
import pytest
from jax._src.lru_cache import LRUCache
from typer.testing import CliRunner

from metafun.cli import app
from metafun.errors import InvalidConfig
from metafun.training import programs
from metafun.training.programs import keep_programs

SETTINGS = {
    "jax_compilation_cache_dir": None,
    "jax_compilation_cache_max_size": -1,
    "jax_persistent_cache_min_compile_time_secs": 1.0,
    "jax_enable_compilation_cache": True,
}


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """JAX as in a new process, and an empty cache folder of the user; nothing is compiled meanwhile."""
    before = {name: getattr(jax.config, name) for name in SETTINGS}
    for name, value in SETTINGS.items():
        jax.config.update(name, value)
    monkeypatch.setattr(platformdirs, "user_cache_path", lambda name, appauthor: tmp_path / name)
    monkeypatch.delenv(programs.SWITCH, raising=False)
    keep_programs.cache_clear()
    yield tmp_path / "metafun" / "compiled"
    keep_programs.cache_clear()
    for name, value in before.items():
        jax.config.update(name, value)


def test_programs_are_kept_and_bounded(cache):
    keep_programs()
    assert jax.config.jax_compilation_cache_dir == str(cache) and cache.is_dir()
    assert 0 < jax.config.jax_compilation_cache_max_size <= 2**30
    assert jax.config.jax_persistent_cache_min_compile_time_secs < 1


def test_the_users_choice_comes_first(cache, tmp_path):
    jax.config.update("jax_compilation_cache_dir", str(tmp_path / "mine"))
    keep_programs()
    assert jax.config.jax_compilation_cache_dir == str(tmp_path / "mine")
    assert jax.config.jax_compilation_cache_max_size == -1 and not cache.exists()


def test_a_cache_that_is_disabled_stays_so(cache):
    jax.config.update("jax_enable_compilation_cache", False)
    keep_programs()
    assert jax.config.jax_compilation_cache_dir is None and not cache.exists()


def test_a_variable_switches_it_off(cache, monkeypatch):
    monkeypatch.setenv(programs.SWITCH, "0")
    keep_programs()
    assert jax.config.jax_compilation_cache_dir is None and not cache.exists()


def test_another_value_of_the_variable_is_refused(cache, monkeypatch):
    monkeypatch.setenv(programs.SWITCH, "off")
    with pytest.raises(InvalidConfig, match="METAFUN_KEEP_PROGRAMS = 'off', but it must be 0 or 1"):
        keep_programs()


def test_the_command_line_refuses_it_in_a_line(cache, monkeypatch):
    monkeypatch.setenv(programs.SWITCH, "off")
    refused = CliRunner().invoke(app, ["info"])
    assert refused.exit_code == 2 and refused.stderr.count("\n") == 1
    assert "METAFUN_KEEP_PROGRAMS = 'off', but it must be 0 or 1" in refused.stderr


def test_a_folder_that_cannot_be_made_is_no_error(cache):
    cache.parent.write_text("a file in its place")
    keep_programs()
    assert jax.config.jax_compilation_cache_dir is None


def test_programs_without_a_time_of_use_do_not_stop_the_cache(cache):
    """As a killed process leaves them, and an earlier version did; JAX's own code reads the folder."""
    cache.mkdir(parents=True)
    (cache / "undated-cache").write_bytes(b"a program")
    (cache / "dated-cache").write_bytes(b"a program")
    (cache / "dated-atime").write_bytes((1).to_bytes(8, "little"))
    keep_programs()
    kept = LRUCache(str(cache), max_size=programs.MOST_BYTES)
    kept.put("new", b"another program")
    assert kept.get("new") == b"another program" and kept.get("dated") == b"a program"
    assert not (cache / "undated-cache").exists()
