"""Every option that a machine without a GPU can run trains one step with the real engine, policy and task."""

import lightning
import pytest
from hydra.utils import instantiate

from lightning_rollout_is.recipes.grpo_config import grpo_from_config
from tests.config.test_train import OPTIONS
from tests.engines.installed import needs_llama_cpp, needs_reasoning_gym

GPU = {"trainer=gpu", "trainer=ddp", "trainer=fsdp"}
ELSEWHERE = {"trainer=ddp_cpu", "task=reasoning_gym", "policy=tiny_llama"}  # two processes; an extra; the demo's policy
LARGE = {
    "policy=smollm2",
    "experiment=real",
    "rollout=vllm",
    "rollout=vllm_server",
}  # a real model; an engine of gigabytes
NEEDS = {"rollout=llama_cpp": [needs_llama_cpp], "task=one_digit_sums": [needs_reasoning_gym]}
TRIED = [
    pytest.param(option, marks=NEEDS.get(option, [])) for option in OPTIONS if option not in GPU | ELSEWHERE | LARGE
]
SMALL = ["policy=random_llama", "policy.layers=1", "policy.width=32", "trainer.enable_progress_bar=false"]
ONE_STEP = ["data.train_batch_size=2", "actor_rollout_ref.actor.ppo_mini_batch_size=2", "trainer.max_steps=1"]


@pytest.mark.parametrize("option", TRIED)
def test_one_step(compose_train, option):
    config = compose_train(*SMALL, option, *ONE_STEP)
    lightning.seed_everything(config.seed, verbose=False)
    loggers, callbacks = (list(instantiate(group).values()) for group in (config.logger, config.callbacks))
    trainer = instantiate(config.trainer, logger=loggers, callbacks=callbacks)
    trainer.fit(grpo_from_config(config))
    assert trainer.global_step == 1
    written = {tag for tag in trainer.callback_metrics if tag.startswith("mismatch/")}
    assert bool(written) is (option not in {"algorithm=off", "callbacks=none"})
