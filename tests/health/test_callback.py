"""``RolloutISHealth`` in a real Trainer: what it says and when, and how it ends a run."""

import pickle
from dataclasses import replace

import pytest
from lightning.fabric.utilities.exceptions import MisconfigurationException
from lightning.pytorch import Callback
from lightning.pytorch.loggers import CSVLogger, TensorBoardLogger

from lightning_rollout_is import RolloutISCallback, RolloutISHealth
from lightning_rollout_is.callbacks import UnhealthyError
from lightning_rollout_is.health import Rules
from tests.health.runs import COUNT, OK, RULES, SICK, WORSE, batch, run
from tests.trainer.late import LateCallback
from tests.trainer.policy import Policy, PolicyWithTwoOptimizers
from tests.trainer.runs import curves, fit

SOURCES = [RolloutISCallback, LateCallback]


@pytest.mark.parametrize("source", SOURCES)
def test_an_episode_is_told_once_and_so_is_its_end(monkeypatch, tmp_path, source):
    shifts = [OK, SICK, SICK, WORSE, SICK, OK, SICK, OK, OK, OK, SICK]
    _, told = run(monkeypatch, tmp_path, shifts, source=source())
    assert told.begun == [(1, ["kl"]), (3, ["mean_low"]), (10, ["kl"])]
    assert told.ended == [
        "RolloutISHealth: mean_low, which began at step 3, is over at step 5.",
        "RolloutISHealth: kl, which began at step 1, is over at step 8.",
    ]


def test_one_warning_says_it_all(monkeypatch, tmp_path):
    _, told = run(monkeypatch, tmp_path, [OK, WORSE])
    (text,) = told.warned
    first, *findings, last = text.splitlines()
    assert first == "RolloutISHealth at step 1:"
    assert [finding.split()[0] for finding in findings] == ["[mean_low]", "[kl]"]
    assert "(mismatch/rollout_is_mean = 0.3679, threshold 0.5, since step 1)" in findings[0]
    assert "Likely causes: (1) " in findings[0]
    assert "What to do: " in findings[1]
    assert last == "Said once until it is over. To turn a rule off: callbacks.health.rules.mean_low: null"


@pytest.mark.parametrize("source", SOURCES)
def test_the_number_of_findings_is_a_curve_beside_the_others(monkeypatch, tmp_path, source):
    loggers = [TensorBoardLogger(tmp_path, name="", version=""), CSVLogger(tmp_path, name="", version="csv")]
    trainer, _ = run(monkeypatch, tmp_path, [OK, SICK, WORSE, OK], source=source(), logger=loggers)
    written = curves(tmp_path)
    assert written[COUNT] == [(0, 0.0), (1, 1.0), (2, 2.0), (3, 0.0)]
    assert [step for step, _ in written["mismatch/mismatch_kl"]] == [0, 1, 2, 3]
    header, *rows = [line.split(",") for line in (tmp_path / "csv" / "metrics.csv").read_text().splitlines()]
    counted = {row[header.index("step")]: row[header.index(COUNT)] for row in rows if row[header.index(COUNT)]}
    assert counted == {"0": "0.0", "1": "1.0", "2": "2.0", "3": "0.0"}
    assert trainer.callback_metrics[COUNT] == 0.0


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("first", [True, False])
def test_the_order_of_the_callbacks_is_indifferent(monkeypatch, tmp_path, source, first):
    both = [RolloutISHealth(RULES, on_unhealthy="stop"), source()]
    trainer, told = run(monkeypatch, tmp_path, [OK, SICK, OK, OK, OK], callbacks=both if first else both[::-1])
    assert told.begun == [(1, ["kl"])]
    assert trainer.global_step == (2 if source is RolloutISCallback else 3)


@pytest.mark.parametrize("source", SOURCES)
def test_stop_ends_training_as_early_stopping_does(monkeypatch, tmp_path, source):
    health = RolloutISHealth(RULES, on_unhealthy="stop")
    trainer, told = run(monkeypatch, tmp_path, [OK, OK, SICK, SICK, SICK], health, source=source(), max_epochs=3)
    assert trainer.should_stop
    # Values that arrive late are known a step later.
    assert trainer.global_step == (3 if source is RolloutISCallback else 4)
    assert told.begun == [(2, ["kl"])]
    assert "Training stops here (on_unhealthy: stop)." in told.warned[0]
    assert health.findings[0].rule == "kl"


@pytest.mark.parametrize("source", SOURCES)
def test_raise_ends_training_with_an_error_of_its_own(monkeypatch, tmp_path, source):
    health = RolloutISHealth(RULES, on_unhealthy="raise")
    error, told = run(monkeypatch, tmp_path, [OK, OK, SICK, SICK, SICK], health, source=source())
    assert type(error) is UnhealthyError
    assert told.warned == []
    assert str(error).startswith("RolloutISHealth at step 2:\n[kl] the two policies are far apart")
    assert "Training ends here (on_unhealthy: raise)." in str(error)
    assert [(finding.rule, finding.since) for finding in error.findings] == [("kl", 2)]
    # The point that tells why is in the curves.
    assert curves(tmp_path)[COUNT] == [(0, 0.0), (1, 0.0), (2, 1.0)]


@pytest.mark.parametrize("action", ["warn", "stop", "raise"])
def test_a_healthy_run_goes_on(monkeypatch, tmp_path, action):
    trainer, told = run(monkeypatch, tmp_path, [OK] * 4, RolloutISHealth(RULES, action), max_epochs=2)
    assert trainer.global_step == 8
    assert not trainer.should_stop
    assert (told.warned, told.ended) == ([], [])


def test_the_last_point_is_judged_though_it_arrives_late(monkeypatch, tmp_path):
    error, _ = run(monkeypatch, tmp_path, [OK, SICK], RolloutISHealth(RULES, "raise"), source=LateCallback())
    assert type(error) is UnhealthyError


class Broken(Policy):
    def training_step(self, batch, batch_idx):
        if batch_idx == 2:
            raise RuntimeError("out of memory")
        return super().training_step(batch, batch_idx)


@pytest.mark.parametrize("health_first", [True, False])
def test_what_ends_training_by_itself_is_not_hidden(monkeypatch, tmp_path, health_first):
    """The point under way is judged while the error passes, and told as a warning."""
    both = [RolloutISHealth(RULES, "raise"), LateCallback()]
    callbacks = both if health_first else both[::-1]
    error, told = run(monkeypatch, tmp_path, [OK, SICK, OK], module=Broken(), callbacks=callbacks)
    assert str(error) == "out of memory"
    assert told.begun == [(1, ["kl"])]
    assert "Said once" in told.warned[0]


def test_windows_of_accumulation_are_judged_as_a_whole(monkeypatch, tmp_path):
    data = [batch(shift, seed=0) for shift in (OK, 0.15, OK, 0.25, OK, OK)]
    _, told = run(monkeypatch, tmp_path, (), data=data, accumulate_grad_batches=2)
    assert told.begun == [(1, ["kl"])]
    assert curves(tmp_path)[COUNT] == [(0, 0.0), (1, 1.0), (2, 0.0)]


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("policy", [Policy, PolicyWithTwoOptimizers])
def test_manual_optimisation(monkeypatch, tmp_path, source, policy):
    health = RolloutISHealth(RULES, "stop")
    settings = {"module": policy(automatic=False), "source": source()}
    trainer, told = run(monkeypatch, tmp_path, [OK, SICK, SICK, OK, OK], health, **settings)
    assert told.begun == [(1, ["kl"])]
    assert trainer.fit_loop.epoch_loop.batch_progress.total.completed == (2 if source is RolloutISCallback else 3)


def test_points_are_those_of_the_interval(monkeypatch, tmp_path):
    shifts = [SICK, OK, SICK, OK, OK, SICK]
    _, told = run(monkeypatch, tmp_path, shifts, source=RolloutISCallback(every_n_steps=2))
    assert told.begun == [(5, ["kl"])]
    assert [step for step, _ in curves(tmp_path)[COUNT]] == [1, 3, 5]


def test_another_prefix(monkeypatch, tmp_path):
    health = RolloutISHealth(RULES)
    run(monkeypatch, tmp_path, [SICK], health, source=RolloutISCallback(prefix="off-policy/"))
    assert health.findings[0].metric == "off-policy/mismatch_kl"
    assert curves(tmp_path)["off-policy/health_findings"] == [(0, 1.0)]


def test_of_two_sources_the_first_is_judged(monkeypatch, tmp_path):
    callbacks = [RolloutISCallback(prefix="a/"), RolloutISHealth(RULES), RolloutISCallback(prefix="b/")]
    _, told = run(monkeypatch, tmp_path, [OK, SICK, SICK], callbacks=callbacks)
    assert told.begun == [(1, ["kl"])]
    assert {tag for tag in curves(tmp_path) if tag.endswith("health_findings")} == {"a/health_findings"}


def test_one_may_warn_of_everything_and_one_end_training_for_the_worst(monkeypatch, tmp_path):
    worst = RolloutISHealth(replace(RULES, kl=None), on_unhealthy="stop")
    callbacks = [RolloutISCallback(), RolloutISHealth(RULES), worst]
    trainer, told = run(monkeypatch, tmp_path, [SICK, SICK, WORSE, OK, OK], callbacks=callbacks)
    assert trainer.global_step == 3
    assert told.begun == [(0, ["kl"]), (2, ["mean_low"]), (2, ["mean_low"])]


def test_nothing_is_judged_while_nothing_is_computed(monkeypatch, tmp_path):
    module = Policy({"rollout_is_threshold": None})
    trainer, told = run(monkeypatch, tmp_path, [WORSE] * 2, module=module)
    assert told.warned == []
    assert COUNT not in trainer.callback_metrics


def test_no_log_prob_at_all(monkeypatch, tmp_path):
    missing = batch(float("nan"))
    _, told = run(monkeypatch, tmp_path, (), data=[batch(OK), missing, missing])
    assert told.begun == [(1, ["all_missing"])]
    assert "actor_rollout_ref.rollout.calculate_log_probs: true" in told.warned[0]


def test_a_trainer_without_the_curves_is_refused_before_anything_is_spent(tmp_path):
    with pytest.raises(MisconfigurationException, match=r"has no RolloutISCallback; .*callbacks=health\)$"):
        fit(Policy(), [batch(OK)], tmp_path, callbacks=[RolloutISHealth()])


def test_a_second_fit_begins_without_a_past(monkeypatch, tmp_path):
    health = RolloutISHealth(RULES)
    for name in ("first", "second"):
        _, told = run(monkeypatch, tmp_path / name, [OK, SICK, SICK], health)
        assert told.begun == [(1, ["kl"])]


def test_a_second_fit_may_have_another_prefix(monkeypatch, tmp_path):
    health = RolloutISHealth(RULES)
    for prefix in ("a/", "b/"):
        _, told = run(monkeypatch, tmp_path / prefix, [SICK], health, source=RolloutISCallback(prefix=prefix))
        assert f"({prefix}mismatch_kl = 0.3," in told.warned[0]


@pytest.mark.parametrize(("rules", "kl"), [(None, 0.1), ({}, 0.1), ({"kl": 0.3}, 0.3), (Rules(kl=0.4), 0.4)])
def test_rules_may_come_in_any_form(rules, kl):
    assert RolloutISHealth(rules).rules.kl == kl


def test_an_unknown_rule_is_refused_at_once():
    with pytest.raises(ValueError, match="unknown rule 'kll', did you mean 'kl'"):
        RolloutISHealth({"kll": 0.1})


def test_the_error_reaches_another_process():
    error = pickle.loads(pickle.dumps(UnhealthyError("words", ["finding"])))
    assert (str(error), error.findings) == ("words", ("finding",))


class Told(Callback):
    def __init__(self):
        self.points = []

    def on_rollout_is_point(self, trainer, point):
        self.points.append(
            (point.step, point.numbers["mine/mismatch_kl"], trainer.callback_metrics["mine/mismatch_kl"])
        )


def test_any_callback_may_be_told_of_the_points(tmp_path):
    told = Told()
    fit(Policy(), [batch(0.25), batch(0.5)], tmp_path, callbacks=[told, LateCallback(prefix="mine/")])
    assert [(step, round(kl, 5)) for step, kl, _ in told.points] == [(0, 0.25), (1, 0.5)]
    assert all(metric == kl for _, kl, metric in told.points)
