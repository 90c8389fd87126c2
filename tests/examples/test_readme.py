"""The code that README shows does what README says."""

import re
from pathlib import Path
from types import SimpleNamespace

import lightning
import torch
import yaml

from lightning_rollout_is import RolloutISConfig, RolloutISMetrics
from tests.trainer.policy import rollout_batch
from tests.trainer.runs import QUIET, Batches

README = (Path(__file__).parents[2] / "README.md").read_text()


def code(language):
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


class Model(torch.nn.Embedding):
    """Logits of the next token from the token alone."""

    def forward(self, token_ids):
        return SimpleNamespace(logits=super().forward(token_ids))


def test_the_module_trains_and_reports():
    names = {}
    shown = code("python")[0]
    exec(shown.replace("lightning.Trainer(", f"lightning.Trainer(max_epochs=1, logger=False, **{QUIET}, "), names)
    batch = rollout_batch(0)
    batch = {**batch, "input_ids": batch["token_ids"], "labels": batch["token_ids"], "advantages": torch.randn(3)}
    policy = names["Policy"](Model(7, 7), {"rollout_is_threshold": 2.0, "rollout_is": True})
    before = policy.model.weight.clone()
    names["trainer"].fit(policy, Batches([batch]))
    assert not torch.equal(policy.model.weight, before)
    assert names["trainer"].callback_metrics["mismatch/mismatch_k3_kl"] > 0
    assert isinstance(policy, lightning.LightningModule)


def test_the_configuration_table_lists_every_key_with_its_default():
    rows = dict(re.findall(r"^\| `(rollout_is[a-z_]*)` \| `([^`]*)` \|", README, re.MULTILINE))
    assert rows.keys() == vars(RolloutISConfig()).keys()
    for key, text in rows.items():
        assert RolloutISConfig.from_mapping({key: yaml.safe_load(text)}) == RolloutISConfig(), key


def test_the_metric_table_lists_every_metric_and_no_other():
    table = README[README.index("## Read it") : README.index("## What it costs")]
    first_cells = [line.split("|")[1] for line in table.splitlines() if line.startswith("| `")]
    listed = [name for cell in first_cells for name in re.findall(r"`([a-z0-9_]+)`", cell)]
    metrics = RolloutISMetrics(RolloutISConfig(2.0, rollout_is_mode="mask"), prefix="", details=True)
    # Of a row of percentiles or tenths the first is named in full.
    named = [name for name in listed if not name.startswith("_")]
    once = [name for name in metrics.values() if not re.search(r"_(p|decile_)(0[2-9]|[1-9].)$", name)]
    assert sorted(named) == sorted(once)
