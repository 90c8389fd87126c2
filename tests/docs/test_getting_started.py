"""The code of the page does what the page says."""

from types import SimpleNamespace

import lightning
import pytest
import torch
from hydra import compose, initialize_config_dir
from hydra.utils import instantiate

from lightning_rollout_is import RolloutISCallback, RolloutISConfig, RolloutISHealth
from tests.docs.pages import blocks
from tests.trainer.policy import rollout_batch
from tests.trainer.runs import QUIET, Batches


class Model(torch.nn.Embedding):
    """Logits of the next token from the token alone."""

    def forward(self, token_ids):
        return SimpleNamespace(logits=super().forward(token_ids))


@pytest.fixture(scope="module")
def names():
    """What the blocks define, run one after the other as a reader would."""
    names = {}
    for block in blocks("getting_started", "python"):
        exec(block.replace("lightning.Trainer(", f"lightning.Trainer(max_epochs=1, logger=False, **{QUIET}, "), names)
    return names


def fitted(module, callbacks=()):
    batch = rollout_batch(0, mismatch=0.01)
    batch = {**batch, "input_ids": batch["token_ids"], "labels": batch["token_ids"], "advantages": torch.randn(3)}
    batch["data_source"] = ["math", "code", "math"]
    trainer = lightning.Trainer(max_epochs=1, logger=False, callbacks=[RolloutISCallback(), *callbacks], **QUIET)
    before = module.model.weight.clone()
    trainer.fit(module, Batches([batch]))
    assert not torch.equal(module.model.weight, before)
    return trainer.callback_metrics


@pytest.mark.parametrize("policy", ["Policy", "Reinforce"])
def test_each_module_trains_and_is_measured(names, policy):
    values = fitted(names[policy](Model(7, 7), names["algorithm"]), [RolloutISHealth()])
    assert 0 < values["mismatch/mismatch_k3_kl"] < 1e-3
    assert values["mismatch/health_findings"] == 0


def test_parts_of_the_data_have_values_of_their_own(names):
    values = fitted(names["MixedPolicy"](Model(7, 7), names["algorithm"]))
    assert values["mismatch/mismatch_kl/math"] != values["mismatch/mismatch_kl/code"]
    assert values["mismatch/rollout_is_ungrouped_fraction"] == 0


def test_the_trainer_has_both_callbacks(names):
    kinds = [type(callback) for callback in names["trainer"].callbacks]
    assert RolloutISCallback in kinds
    assert RolloutISHealth in kinds


def test_ranks_with_different_data_are_named_where_the_mesh_exists(names):
    class Placed(names["ParallelPolicy"]):
        device_mesh = {"data_parallel": SimpleNamespace(get_group=lambda: "the group")}  # noqa: RUF012

    module = Placed(Model(7, 7), names["algorithm"])
    module.configure_model()
    assert module.rollout_is_metrics.process_group == "the group"


def test_the_loop_without_lightning_counts_both_micro_batches(names):
    single = RolloutISConfig(rollout_is_threshold=2.0)
    assert names["metrics"].config.upper == single.upper
    assert names["values"]["mismatch/rollout_is_veto_fraction"] == 0
    assert names["values"]["mismatch/mismatch_kl"].item() == pytest.approx((-0.1 - 2.0) / 5, abs=1e-6)


def test_the_hydra_block_composes(tmp_path):
    (defaults,) = blocks("getting_started", "yaml")
    (tmp_path / "app.yaml").write_text(defaults)
    with initialize_config_dir(str(tmp_path), version_base="1.3"):
        cfg = compose("app")
        overridden = compose("app", overrides=["algorithm=geometric_mask", "algorithm.rollout_is=false"])
    assert RolloutISConfig.from_mapping(cfg.algorithm).applied
    assert RolloutISConfig.from_mapping(overridden.algorithm).rollout_is_level == "geometric"
    assert [type(instantiate(each)) for each in cfg.callbacks.values()] == [RolloutISCallback, RolloutISHealth]
