"""``conf/callbacks/health.yaml`` as a user of Hydra meets it."""

import pytest
from hydra import compose, initialize_config_dir
from hydra.errors import ConfigCompositionException
from hydra.utils import instantiate

from lightning_rollout_is import RolloutISHealth
from lightning_rollout_is.health import Rules
from lightning_rollout_is.hydra_store import conf_directory


def callbacks(*overrides):
    with initialize_config_dir(str(conf_directory()), version_base="1.3"):
        return compose("train", list(overrides)).callbacks


def made(*overrides):
    return list(instantiate(callbacks(*overrides)).values())


def the_health(*overrides):
    return next(callback for callback in made(*overrides) if isinstance(callback, RolloutISHealth))


@pytest.mark.parametrize("choice", ["health", "[default,health]", "[health,default]", "[none,health]"])
def test_the_curves_come_with_it(choice):
    names = [type(callback).__name__ for callback in made(f"callbacks={choice}")]
    assert sorted(names) == ["RolloutISCallback", "RolloutISHealth"]


def test_with_the_defaults_of_the_rules():
    health = the_health("callbacks=health")
    assert (health.rules, health.on_unhealthy) == (Rules(), "warn")


def test_every_threshold_can_be_set():
    overrides = ["on_unhealthy=stop", "rules.kl=0.05", "rules.jump=null", "rules.patience=3"]
    health = the_health("callbacks=health", *(f"callbacks.health.{override}" for override in overrides))
    assert health.rules == Rules(kl=0.05, jump=None, patience=3)
    assert health.on_unhealthy == "stop"


def test_a_typo_is_refused():
    with pytest.raises(ConfigCompositionException, match="kll"):
        callbacks("callbacks=health", "callbacks.health.rules.kll=0.05")
    with pytest.raises(Exception, match="unknown rule 'kll', did you mean 'kl'"):
        made("callbacks=health", "+callbacks.health.rules.kll=0.05")


def test_nothing_of_hydra_stays_in_the_callback():
    health = the_health("callbacks=health")
    assert type(health.rules) is Rules
    assert {type(value) for value in vars(health.rules).values()} == {int, float}
