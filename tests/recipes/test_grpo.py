"""The main job in small: a real policy, a real engine, a real Trainer, and what it wrote."""

import copy

import lightning
import pytest
import torch

from lightning_rollout_is.engines import CTranslate2Engine, RoundedWeights, StaleEngine
from lightning_rollout_is.event_files import read_events
from tests.recipes.tiny import fit, tiny_module


class Watched(StaleEngine):
    """Every refresh is passed on, and what it brought is kept."""

    def __init__(self, engine):
        super().__init__(engine, every=1)
        self.received = []

    def sync_weights(self, policy):
        super().sync_weights(policy)
        self.received.append(snapshot(policy))


class Record(lightning.Callback):
    """The weights after every optimizer step, and every batch."""

    def __init__(self):
        self.after, self.batches = [], []

    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
        self.after.append(snapshot(pl_module.policy))
        self.batches.append(batch)


def snapshot(policy):
    return torch.cat([weight.detach().flatten() for weight in policy.parameters()])


def test_three_steps_give_three_points_of_every_curve(tmp_path):
    fit(tiny_module(), tmp_path)
    history = read_events(tmp_path)
    for name in ("reward", "loss", "response_length", "clip_fraction", "mismatch/rollout_is_mean"):
        assert len(history[name]) == 3, name
    assert sum(name.startswith("mismatch/") for name in history) >= 27


def test_without_mismatch_every_weight_is_one(tmp_path):
    fit(tiny_module(engine=CTranslate2Engine("float32")), tmp_path)
    history = read_events(tmp_path)
    for name in ("min", "max", "mean"):
        assert history[f"mismatch/rollout_is_{name}"] == pytest.approx([1.0] * 3, abs=1e-4)


def test_int4_rollouts_do_have_a_mismatch_and_it_is_the_one_that_is_logged(tmp_path):
    record = Record()
    fit(tiny_module(engine=RoundedWeights(CTranslate2Engine("float32"), "int4")), tmp_path, record)
    history = read_events(tmp_path)
    assert min(history["mismatch/mismatch_k3_kl"]) > 1e-6
    for batch, kl, reward in zip(record.batches, history["mismatch/mismatch_kl"], history["reward"], strict=True):
        difference = (batch.rollout_log_prob - batch.old_log_prob)[batch.response_mask]
        assert kl == pytest.approx(difference.double().mean().item(), rel=1e-4, abs=1e-7)
        assert reward == pytest.approx(batch.mean_reward[0].item())


def test_a_rollout_is_generated_after_the_step_before_it(tmp_path):
    engine, record = Watched(CTranslate2Engine("float32")), Record()
    module = tiny_module(engine=engine)
    start = snapshot(module.policy)
    fit(module, tmp_path, record)
    assert len(engine.received) == 3
    for received, present in zip(engine.received, [start, *record.after], strict=False):
        assert torch.equal(received, present)
    assert not torch.equal(record.after[0], start)


def test_mini_batches_and_epochs_share_a_rollout(tmp_path):
    engine, record = Watched(CTranslate2Engine("float32")), Record()
    module = tiny_module(engine=engine, ppo_epochs=2, ppo_mini_batch_size=2)
    assert fit(module, tmp_path, record, max_steps=6).global_step == 6
    assert len(engine.received) == 2
    first, second = record.batches[:2], record.batches[2:4]
    for name in ("old_log_prob", "rollout_log_prob"):
        rows = [
            sorted(tuple(row.tolist()) for batch in epoch for row in getattr(batch, name)) for epoch in (first, second)
        ]
        assert rows[0] == rows[1]


def test_the_weights_of_a_rollout_stay_the_same_while_the_policy_moves(tmp_path):
    """They compare the engine with the trainer at rollout time: exactly 1 here, however far the inner epochs go."""
    fit(tiny_module(engine=CTranslate2Engine("float32"), ppo_epochs=4), tmp_path, max_steps=4)
    history = read_events(tmp_path)
    assert history["clip_fraction"][0] == 0.0 < history["clip_fraction"][-1]
    for name in ("min", "max"):
        assert history[f"mismatch/rollout_is_{name}"] == pytest.approx([1.0] * 4, abs=1e-4)


def test_the_trainer_scores_what_the_engine_sampled(tmp_path):
    record = Record()
    fit(tiny_module(engine=CTranslate2Engine("float32")), tmp_path, record)
    for batch in record.batches:
        assert torch.equal(
            batch.rollout_log_prob[~batch.response_mask], torch.zeros_like(batch.rollout_log_prob)[~batch.response_mask]
        )
        difference = (batch.old_log_prob - batch.rollout_log_prob)[batch.response_mask]
        torch.testing.assert_close(difference, torch.zeros_like(difference), rtol=0, atol=1e-4)


def test_the_first_pass_over_a_rollout_is_on_policy(tmp_path):
    """The PPO ratio is 1, so that the loss is minus the mean advantage of the tokens, weighted."""
    record = Record()
    fit(tiny_module(engine=CTranslate2Engine("float32")), tmp_path, record, max_steps=1)
    batch = record.batches[0]
    advantages = batch.advantages[:, None].expand_as(batch.response_mask)[batch.response_mask]
    assert read_events(tmp_path)["loss"][0] == pytest.approx(-advantages.mean().item(), abs=1e-4)


def test_dividing_by_the_standard_deviation_is_a_choice(tmp_path):
    def largest_advantage(norm):
        record = Record()
        fit(tiny_module(norm_adv_by_std_in_grpo=norm), tmp_path / str(norm), record, max_steps=1)
        return record.batches[0].advantages.abs().max()

    assert largest_advantage(False) < 1 < largest_advantage(True)


def test_the_seed_decides(tmp_path):
    def rewards(seed, name):
        fit(tiny_module(seed=seed), tmp_path / name)
        return read_events(tmp_path / name)["reward"]

    first, again, other = rewards(1, "first"), rewards(1, "again"), rewards(2, "other")
    assert first == again
    assert first != other


def test_accumulated_micro_batches_are_one_step(tmp_path):
    engine = Watched(CTranslate2Engine("float32"))
    trainer = fit(tiny_module(engine=engine, ppo_mini_batch_size=2), tmp_path, accumulate_grad_batches=2)
    assert trainer.global_step == 3
    assert len(engine.received) == 3
    assert len(read_events(tmp_path)["mismatch/rollout_is_mean"]) == 3


def test_without_a_bound_on_steps_an_epoch_is_one_rollout(tmp_path):
    engine = Watched(CTranslate2Engine("float32"))
    fit(tiny_module(engine=engine), tmp_path, max_steps=-1, max_epochs=2)
    assert len(engine.received) == 2


def test_a_second_fit_goes_on_with_new_questions(tmp_path):
    module, record = tiny_module(), Record()
    for name in ("first", "second"):
        assert fit(module, tmp_path / name, record).global_step == 3
    assert len(record.batches) == 6
    assert len({tuple(batch.token_ids[:, :4].flatten().tolist()) for batch in record.batches}) == 6


def test_learning_raises_the_reward(tmp_path):
    module = tiny_module(n=8, prompts=8)
    fit(module, tmp_path, max_steps=25)
    reward = read_events(tmp_path)["reward"]
    assert sum(reward[-5:]) / 5 > sum(reward[:5]) / 5 + 0.15


def test_monitoring_trains_like_no_importance_sampling_at_all(tmp_path):
    def trained(algorithm):
        module = tiny_module(engine=CTranslate2Engine("int8"), algorithm=algorithm)
        fit(module, tmp_path / str(len(algorithm)))
        return snapshot(module.policy)

    off, monitor = trained({}), trained({"rollout_is_threshold": 2.0})
    assert torch.equal(off, monitor)
    assert not torch.equal(off, trained({"rollout_is_threshold": 2.0, "rollout_is": True}))


def test_the_policy_given_is_the_policy_trained(tmp_path):
    module = tiny_module()
    before = copy.deepcopy(module.policy.state_dict())
    fit(module, tmp_path)
    changed = [name for name, weight in module.policy.state_dict().items() if not torch.equal(weight, before[name])]
    assert changed == list(before)
