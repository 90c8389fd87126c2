"""``RolloutISConfig.from_mapping``: a dict or a DictConfig, an algorithm block or the whole tree."""

import copy
from types import MappingProxyType

import pytest
from omegaconf import DictConfig, OmegaConf

from lightning_rollout_is import RolloutISConfig

pytestmark = pytest.mark.plain

BLOCK = {
    "rollout_is_threshold": "2.0",
    "rollout_is": True,
    "rollout_is_mode": "mask",
    "rollout_is_veto_threshold": "1e-4",
    "adv_estimator": "grpo",
    "norm_adv_by_std_in_grpo": False,
    "filter_groups": {"enable": True, "metric": "acc", "max_num_gen_batches": 10},
}
EXPECTED = RolloutISConfig(rollout_is_threshold=2.0, rollout_is=True, rollout_is_mode="mask")


def tree(calculate_log_probs: object, **algorithm: object) -> DictConfig:
    rollout = {"name": "vllm", "calculate_log_probs": calculate_log_probs}
    return OmegaConf.create({"algorithm": algorithm, "actor_rollout_ref": {"rollout": rollout}})


@pytest.mark.parametrize("kind", [dict, MappingProxyType, OmegaConf.create])
@pytest.mark.parametrize("wrap", [lambda block: block, lambda block: {"algorithm": block, "seed": 1}])
def test_every_kind_of_mapping_reads_the_same(kind, wrap):
    assert RolloutISConfig.from_mapping(kind(wrap(BLOCK))) == EXPECTED


@pytest.mark.parametrize("empty", [{}, {"algorithm": {}}, {"algorithm": None}])
def test_nothing_given_is_off(empty):
    assert RolloutISConfig.from_mapping(empty) == RolloutISConfig()
    assert RolloutISConfig.from_mapping(OmegaConf.create(empty)) == RolloutISConfig()


def test_a_locked_configuration_is_read_and_left_as_it_was():
    locked = OmegaConf.create({"algorithm": BLOCK})
    OmegaConf.set_struct(locked, True)
    OmegaConf.set_readonly(locked, True)
    before = copy.deepcopy(locked)
    assert RolloutISConfig.from_mapping(locked) == EXPECTED
    assert locked == before
    assert locked.algorithm.rollout_is_veto_threshold == "1e-4"


def test_a_plain_dict_is_left_as_it_was():
    block = copy.deepcopy(BLOCK)
    RolloutISConfig.from_mapping(block)
    assert block == BLOCK


def test_interpolations_are_resolved():
    config = OmegaConf.create({"cap": 3.0, "algorithm": {"rollout_is_threshold": "${cap}"}})
    assert RolloutISConfig.from_mapping(config).upper == 3.0


@pytest.mark.parametrize(
    ("typo", "meant"),
    [
        ("rollout_is_treshold", "rollout_is_threshold"),
        ("rollout_is_modes", "rollout_is_mode"),
        ("rollout_is_veto_treshold", "rollout_is_veto_threshold"),
        ("Rollout_IS_level", "rollout_is_level"),
    ],
)
def test_an_unknown_key_gets_a_suggestion(typo, meant):
    with pytest.raises(ValueError, match="unknown key") as error:
        RolloutISConfig.from_mapping({typo: 2.0})
    message = str(error.value)
    assert f"unknown key {typo!r}, did you mean {meant!r}?" in message
    assert message.endswith(", ".join(RolloutISConfig.__dataclass_fields__))
    assert "\n" not in message


def test_a_key_like_no_other_gets_the_list_alone():
    with pytest.raises(ValueError, match=r"unknown key 'temperature'; allowed: rollout_is_threshold, rollout_is, "):
        RolloutISConfig.from_mapping({"temperature": 1.0})


@pytest.mark.parametrize("wrong", [None, 2.0, "rollout_is: true", [("rollout_is", True)], RolloutISConfig()])
def test_what_is_no_mapping_is_named(wrong):
    with pytest.raises(ValueError, match=type(wrong).__name__):
        RolloutISConfig.from_mapping(wrong)


@pytest.mark.parametrize("applied", [True, False])
def test_rollout_log_probs_switched_off_are_an_error_while_anything_is_computed(applied):
    with pytest.raises(ValueError, match="calculate_log_probs = False") as error:
        RolloutISConfig.from_mapping(tree(False, rollout_is_threshold=2.0, rollout_is=applied))
    message = str(error.value)
    assert "algorithm.rollout_is_threshold = 2" in message
    assert "actor_rollout_ref.rollout.calculate_log_probs" in message
    assert "set it to true, or set the threshold to null" in message


def test_rollout_log_probs_may_be_off_when_nothing_is_computed():
    assert not RolloutISConfig.from_mapping(tree(False, rollout_is_threshold=None)).enabled


def test_rollout_log_probs_switched_on_or_not_mentioned_are_fine():
    assert RolloutISConfig.from_mapping(tree(True, rollout_is_threshold=2.0)).enabled
    assert RolloutISConfig.from_mapping({"algorithm": {"rollout_is_threshold": 2.0}}).enabled
    assert RolloutISConfig.from_mapping({"algorithm": {"rollout_is_threshold": 2.0}, "actor_rollout_ref": None}).enabled
