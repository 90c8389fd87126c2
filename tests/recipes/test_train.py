"""``examples/train.py`` as a user starts it, and one step of every rollout, task and policy that it offers."""

import os
import subprocess
import sys
from pathlib import Path

import hydra
import pytest

from lightning_rollout_is.event_files import read_events
from lightning_rollout_is.hydra_store import conf_directory
from lightning_rollout_is.recipes.grpo_config import grpo_from_config
from tests.engines.installed import needs_llama_cpp, needs_vllm
from tests.recipes.tiny import fit

TRAIN = Path(__file__).parents[2] / "examples" / "train.py"
NEEDS = {"llama_cpp": [needs_llama_cpp], "vllm": [needs_vllm, pytest.mark.filterwarnings("default")]}
ROLLOUTS = [
    pytest.param(file.stem, marks=NEEDS.get(file.stem, []))
    for file in sorted((conf_directory() / "rollout").glob("[!_]*.yaml"))
    # It needs a server: tests/engines/test_vllm_server.py has one.
    if file.stem != "vllm_server"
]


def train(folder, *overrides):
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "160"}
    command = [sys.executable, str(TRAIN), f"hydra.run.dir={folder}", *overrides]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=240, env=environment)


def compose(*overrides):
    with hydra.initialize_config_dir(str(conf_directory()), version_base="1.3"):
        return hydra.compose("train", overrides=["experiment=fast", *overrides])


def test_a_run_writes_its_curves_and_says_where(tmp_path):
    finished = train(tmp_path, "algorithm=geometric_mask", "rollout=int4", "experiment=fast")
    assert finished.returncode == 0, finished.stderr
    assert finished.stderr == ""
    history = read_events(tmp_path / "tensorboard")
    mismatch = {name: values for name, values in history.items() if name.startswith("mismatch/")}
    # Short responses leave some tenths of the profile empty.
    always = [values for name, values in mismatch.items() if "decile" not in name]
    assert len(always) == 30 + 14
    assert {len(values) for values in always} == {3}
    assert f"tensorboard --logdir {tmp_path}/tensorboard" in finished.stdout
    assert (tmp_path / "rollout_is.png").stat().st_size > 10_000
    assert "✕ UNHEALTHY  rollout=int4\n    The bounds reject many tokens" in finished.stdout
    assert "What to do: widen algorithm.rollout_is_threshold" in finished.stdout
    assert f"lightning-rollout-is report {tmp_path}/tensorboard" in finished.stdout
    row = next(line for line in finished.stdout.splitlines() if "masked tokens" in line)
    assert row.split("│")[2].strip() == f"{history['mismatch/rollout_is_masked_fraction'][0]:.5g}"


def test_two_processes_train_together(tmp_path):
    finished = train(tmp_path, "trainer=ddp_cpu", "experiment=fast")
    assert finished.returncode == 0, finished.stderr
    assert len(read_events(tmp_path / "tensorboard")["reward"]) == 3


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("algorithm.rollout_is_level=tokens", ["rollout_is_level", "'tokens'", "token, sequence, geometric"]),
        ("actor_rollout_ref.rollout.engine.compute_type=int3", ["compute_type", "'int3'", "int8"]),
    ],
)
def test_a_wrong_setting_ends_in_one_line(tmp_path, override, words):
    finished = train(tmp_path, override)
    assert finished.returncode == 1
    assert finished.stdout == ""
    assert len(finished.stderr.splitlines()) == 1
    for word in words:
        assert word in finished.stderr


@pytest.mark.parametrize("rollout", ROLLOUTS)
def test_every_rollout_runs_a_step(tmp_path, rollout):
    module = grpo_from_config(compose(f"rollout={rollout}"))
    assert fit(module, tmp_path, max_steps=1).global_step == 1


def test_every_key_reaches_the_module():
    cfg = compose(
        "policy=random_llama",
        "policy.width=32",
        "seed=5",
        "data.train_batch_size=6",
        "data.max_response_length=7",
        "actor_rollout_ref.rollout.n=3",
        "actor_rollout_ref.rollout.temperature=0.7",
        "actor_rollout_ref.actor.ppo_epochs=2",
        "actor_rollout_ref.actor.ppo_mini_batch_size=2",
        "actor_rollout_ref.actor.clip_ratio_low=0.1",
        "actor_rollout_ref.actor.clip_ratio_high=0.3",
        "actor_rollout_ref.actor.clip_ratio_c=4",
        "actor_rollout_ref.actor.loss_agg_mode=seq-mean-token-sum",
        "actor_rollout_ref.actor.optim.lr=0.5",
        "actor_rollout_ref.actor.optim.weight_decay=0.25",
        "algorithm.norm_adv_by_std_in_grpo=false",
        "algorithm.filter_groups.enable=true",
        "algorithm.filter_groups.max_num_gen_batches=4",
        "algorithm.rollout_is_threshold=3.0",
    )
    module = grpo_from_config(cfg)
    sampler = module.sampler
    assert (sampler.train_batch_size, sampler.max_response_length, sampler.n, sampler.temperature) == (6, 7, 3, 0.7)
    assert (sampler.dynamic, sampler.most_batches) == (True, 4)
    assert (module.ppo_epochs, module.mini_batch, module.seed, sampler.engine.seed) == (2, 6, 5, 5)
    assert module.ppo_loss.keywords == {"clip_ratio_low": 0.1, "clip_ratio_high": 0.3, "clip_ratio_c": 4.0}
    assert module.aggregate.keywords == {"mode": "seq-mean-token-sum"}
    assert module.norm_by_std is False
    assert module.rollout_is_config.upper == 3.0
    assert module.configure_optimizers().defaults["lr"] == 0.5
    assert module.configure_optimizers().defaults["weight_decay"] == 0.25


@pytest.mark.parametrize(
    ("key", "shown"), [("adv_estimator=gae", "'gae'"), ("use_kl_in_reward=true", "True"), ("use_pf_ppo=true", "True")]
)
def test_another_algorithm_of_verl_is_refused_rather_than_ignored(key, shown):
    name = key.split("=")[0]
    with pytest.raises(ValueError, match=rf"algorithm\.{name} = {shown} is not implemented here; allowed: "):
        grpo_from_config(compose(f"algorithm.{key}"))


def test_what_is_implemented_may_be_spelt_out():
    grpo_from_config(compose("algorithm.adv_estimator=grpo", "algorithm.use_kl_in_reward=false", "algorithm.gamma=1.0"))
