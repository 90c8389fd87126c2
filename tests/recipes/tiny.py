"""A small GRPO job with a real engine."""

import lightning
import torch
from lightning.pytorch.loggers import TensorBoardLogger

from lightning_rollout_is import RolloutISCallback
from lightning_rollout_is.engines import CTranslate2Engine
from lightning_rollout_is.recipes.grpo import GRPOModule
from lightning_rollout_is.recipes.policy import tiny_llama
from lightning_rollout_is.recipes.sampling import GroupSampler
from lightning_rollout_is.recipes.tasks import TaskItem

ALGORITHM = {"rollout_is_threshold": 2.0, "rollout_is": True}


class EvenBytes:
    """Rewards the share of even bytes in the response, so that even an untrained policy earns mixed rewards."""

    def sample(self, n, generator):
        numbers = torch.randint(100, (n,), generator=generator).tolist()
        return [TaskItem(prompt=f"{number}?", answer="") for number in numbers]

    def score(self, item, response):
        codes = response.encode() or b"\x01"
        return sum(code % 2 == 0 for code in codes) / len(codes)


def tiny_module(*, engine=None, task=None, seed=0, algorithm=ALGORITHM, filter_groups=None, n=4, prompts=4, **settings):
    torch.manual_seed(0)
    sampler = GroupSampler(
        engine or CTranslate2Engine("float32", seed=seed),
        task or EvenBytes(),
        n=n,
        train_batch_size=prompts,
        max_response_length=6,
        filter_groups=filter_groups,
    )
    policy = tiny_llama(layers=1, width=32, heads=2, warm_start=False)
    settings = {"ppo_mini_batch_size": prompts, "optim": {"lr": 1e-2}, **settings}
    return GRPOModule(policy, sampler, algorithm, seed=seed, **settings)


def fit(module, folder, *callbacks, **settings):
    quiet = {"enable_progress_bar": False, "enable_model_summary": False, "enable_checkpointing": False}
    settings = {
        "accelerator": "cpu",
        "devices": 1,
        "max_steps": 3,
        "max_epochs": 1,
        "log_every_n_steps": 1,
        **quiet,
        **settings,
    }
    logger = TensorBoardLogger(folder, name="", version="")
    trainer = lightning.Trainer(logger=logger, callbacks=[RolloutISCallback(), *callbacks], **settings)
    trainer.fit(module)
    return trainer
