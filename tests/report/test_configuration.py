"""The configuration of a run, from wherever one was left."""

import pytest

from lightning_rollout_is.report.configuration import differences, read_configuration, setting


def left(folder, place, text):
    (folder / place).parent.mkdir(parents=True, exist_ok=True)
    (folder / place).write_text(text)


def test_settings_are_flat_and_the_file_counts_more_than_the_event(tmp_path):
    left(tmp_path, "hparams.yaml", "lr: 0.5\nalgorithm:\n  rollout_is_threshold_lower: null\n  rollout_is: true\n")
    settings, notes = read_configuration(tmp_path, {"lr": 0.25, "algorithm/rollout_is_level": "token"})
    assert not notes
    assert settings == {
        "lr": "0.5",
        "algorithm.rollout_is_level": "token",
        "algorithm.rollout_is_threshold_lower": "null",
        "algorithm.rollout_is": "True",
    }


@pytest.mark.parametrize("below", [".", "tensorboard", "lightning_logs/version_0"])
def test_hydras_file_is_found_above_the_loggers_folder(tmp_path, below):
    left(tmp_path, ".hydra/config.yaml", "seed: 1\nengine:\n  seed: ${seed}\n  elsewhere: ${hydra:runtime.cwd}\n")
    left(tmp_path / below, "hparams.yaml", "seed: 2")
    settings, _ = read_configuration(tmp_path / below, {})
    assert settings == {"seed": "1", "engine.seed": "${seed}", "engine.elsewhere": "${hydra:runtime.cwd}"}


def test_hydras_file_of_something_far_above_is_not_ours(tmp_path):
    left(tmp_path, ".hydra/config.yaml", "seed: 1")
    assert read_configuration(tmp_path / "a" / "b" / "c", {}) == ({}, [])


@pytest.mark.parametrize("text", ["a: [", "model: !!python/object:nowhere.Nothing {}", "just words", "\x00"])
def test_a_file_that_cannot_be_read_is_a_note(tmp_path, text):
    left(tmp_path, "hparams.yaml", text)
    settings, notes = read_configuration(tmp_path, {"lr": 1.0})
    assert settings["lr"] == "1.0"
    assert len(notes) == ("words" not in text)
    assert all("hparams.yaml cannot be read" in note for note in notes)


@pytest.mark.parametrize("text", ["", "{}", "null"])
def test_an_empty_file_is_no_configuration(tmp_path, text):
    left(tmp_path, "hparams.yaml", text)
    assert read_configuration(tmp_path, {}) == ({}, [])


@pytest.mark.parametrize("key", ["wandb.api_key", "hub.access_token", "db.password", "AWS_SECRET", "auth_token"])
def test_secrets_do_not_travel(tmp_path, key):
    settings, _ = read_configuration(tmp_path, {key: "hunter2", "max_tokens": 5})
    assert settings == {key: "(hidden)", "max_tokens": "5"}


def test_a_setting_is_found_by_whole_names_alone():
    assert setting({"algorithm.rollout_is_level": "a", "my_rollout_is": "b"}, "rollout_is", "none") == "none"


def test_runs_of_one_configuration_do_not_differ():
    assert differences([{"lr": "1"}, {"lr": "1"}]) == {}
    assert differences([]) == {}
