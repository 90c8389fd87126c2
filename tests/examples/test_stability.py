"""The experiment that trains with and without the correction: its runs, its files, its verdicts and its page."""

import doctest
import re
from pathlib import Path

import pytest
import torch
from hydra import compose, initialize_config_dir

from examples.stability import __main__ as command
from examples.stability import figure, gradient, pool, results, tables
from examples.stability import grid as examples_grid
from examples.stability import tried as examples_tried
from examples.stability.grid import ALGORITHMS, ENGINES, OVERRIDES, Run, grid
from examples.stability.results import EVALUATED
from examples.stability.tried import TRIED
from lightning_rollout_is import hydra_store, importance_weights
from lightning_rollout_is.recipes.policy import tiny_llama

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "stability.md").read_text()
RECORDED = results.read(DOCS / "stability")
SMALL = ["--set", "trainer.max_steps=2", "data.train_batch_size=4", "actor_rollout_ref.rollout.n=4"]
STALE = Run("stale_8", "token_mask", 1)


@pytest.mark.parametrize("module", [examples_grid, examples_tried, results, tables, gradient])
def test_the_examples_in_docstrings(module):
    names = {**vars(module), "torch": torch}
    found = doctest.testmod(module, globs=names, optionflags=doctest.NORMALIZE_WHITESPACE)
    assert found.attempted > 0 == found.failed


def rewarded(*rewards):
    return [{"step": float(8 * number), EVALUATED: reward} for number, reward in enumerate(rewards)]


def test_the_grid_has_every_cell_and_one_control():
    runs = grid(list(ENGINES), ALGORITHMS, seeds=2)
    assert len(set(runs)) == len(runs) == 2 * (5 * len(ALGORITHMS) + 1)
    assert [run.algorithm for run in runs if run.engine == "fp32"] == ["monitor", "monitor"]
    assert [run.seed for run in runs] == sorted(run.seed for run in runs)


def test_a_run_is_trained_once_and_measured_at_every_step(tmp_path, capsys, monkeypatch):
    arguments = ["--engines", "stale_8", "--algorithms", "token_mask", "--seeds", "1", "--out", str(tmp_path), *SMALL]
    command.main([*arguments, "--workers", "1"])
    (run, rows), *others = results.read(tmp_path).items()
    assert (run, others) == (STALE, [])
    assert [row["step"] for row in rows] == [0, 1, 2]
    assert {"reward", "k3", "kl", "ess", "masked", "gradient_norm"} <= rows[1].keys()
    assert 0.2 < rows[0][EVALUATED] < 0.7
    assert rows[1]["k3"] < 1e-9 < rows[2]["k3"]  # in step with the policy, then a step behind it
    capsys.readouterr()
    monkeypatch.setattr(pool, "train_one", None)
    command.main(arguments)
    command.main([*arguments, "--list"])
    assert capsys.readouterr().out.split() == []


def test_what_fails_is_told_and_what_is_missing_is_listed(tmp_path, capsys):
    arguments = ["--engines", "stale_8", "--algorithms", "token_mask", "--seeds", "1", "--out", str(tmp_path)]
    with pytest.raises(SystemExit, match="1 runs failed"):
        command.main([*arguments, "--workers", "1", "--set", "trainer.no_such=1"])
    assert "stale_8 token_mask 1 failed" in capsys.readouterr().err
    command.main([*arguments, "--list"])
    assert capsys.readouterr().out == "stale_8 token_mask 1\n"


def test_what_is_tried_has_overrides_and_a_folder_of_its_own(tmp_path, capsys, monkeypatch):
    given = []
    monkeypatch.setattr(command, "train_all", lambda *work: given.append(work) or 0)
    wide, number = tmp_path / "tried" / "wide_band", list(TRIED).index("wide_band")
    results.add(wide, Run("stale_16", "geometric_mask", 2), [{"step": 0.0}])
    command.main(["--tried", "--out", str(tmp_path), "--set", "trainer.max_steps=2"])
    assert [folder for _, folder, *_ in given] == [tmp_path / "tried" / name for name in TRIED]
    runs, _, _, overrides = given[number]
    assert overrides == (*TRIED["wide_band"].overrides, "trainer.max_steps=2")
    assert len(runs) == len(TRIED["wide_band"].runs()) - 1
    assert Run("stale_16", "geometric_mask", 2) not in runs
    command.main(["--tried", "--list", "--out", str(tmp_path)])
    assert "wide_band stale_16 geometric_mask 3" in capsys.readouterr().out.splitlines()


@pytest.mark.parametrize("name", TRIED)
def test_what_is_tried_can_be_composed_and_changes_something(name):
    with initialize_config_dir(str(hydra_store.conf_directory()), version_base="1.3"):
        for engine, algorithm in {(run.engine, run.algorithm) for run in TRIED[name].runs()}:
            chosen = [*OVERRIDES[engine], f"algorithm={algorithm}"]
            changed = compose("train", [*chosen, *TRIED[name].overrides])
            assert TRIED[name].overrides == () or changed != compose("train", chosen)


@pytest.mark.parametrize("name", TRIED)
def test_every_run_that_was_tried_is_recorded_whole(name):
    recorded = results.read(DOCS / "stability" / "tried" / name)
    assert set(recorded) == set(TRIED[name].runs())
    steps = 1 + int(next((more.split("=")[1] for more in TRIED[name].overrides if "max_steps" in more), 128))
    for run, rows in recorded.items():
        assert [row["step"] for row in rows] == list(range(steps)), run
        assert [row["step"] for row in rows if EVALUATED in row] == list(range(0, steps, 8)), run


def test_overrides_stay_out_of_the_published_results(capsys, monkeypatch):
    monkeypatch.setattr(command, "train_all", lambda *given: 0)
    monkeypatch.setattr(command, "publish", lambda folder: None)
    with pytest.raises(SystemExit):
        command.main(SMALL)
    assert "--out" in capsys.readouterr().err


def test_a_run_is_written_whole_or_not_at_all(tmp_path, monkeypatch):
    results.add(tmp_path, STALE, [{"step": 1, "k3": 0.25, "masked": float("nan")}])
    monkeypatch.setattr(results.os, "replace", lambda *files: exec("raise KeyboardInterrupt"))
    with pytest.raises(KeyboardInterrupt):
        results.add(tmp_path, STALE._replace(seed=2), [{"step": 1, "k3": 0.5}])
    assert results.read(tmp_path) == {STALE: [{"step": 1, "k3": 0.25}]}
    monkeypatch.undo()
    results.add(tmp_path, STALE._replace(seed=2), [{"step": 1, "k3": 0.5}])
    assert [run.seed for run in results.read(tmp_path)] == [1, 2]


def test_a_run_has_collapsed_under_half_of_its_best():
    assert results.outcome(rewarded(0.4, 0.8, 0.3, 0.4, 0.5)) == (0.4, 0.8, 0.3, 0.4)
    assert not results.outcome(rewarded(0.4, 0.8, 0.4, 0.4, 0.4)).collapsed
    assert results.outcome(rewarded(0.4, 0.8, 0.4, 0.4, 0.39)).collapsed
    assert tables.half_lost(rewarded(0.4, 0.8, 0.41, 0.39, 0.8)) == 24
    assert tables.half_lost(rewarded(0.4, 0.3, 0.2)) is None


def test_collapsed_runs_are_counted_by_engine_and_correction():
    runs = {STALE: rewarded(0.4, 0.1, 0.1, 0.1), STALE._replace(seed=2): rewarded(0.4, 0.6, 0.6, 0.6)}
    assert "| stale_8 | token_mask | 2 | 0.40 | 0.50 | 0.35 | 0.10 | 0.10 | 1 of 2 |" in tables.outcomes(
        results.cells_of(runs)
    )


def test_a_step_is_counted_at_its_length_times_k3():
    rows = [{"step": 1.0, "length": 10.0, "k3": k3, "ess": k3, "masked": 0.5} for k3 in (0.5, 0.2, 0.2, 0.4)]
    table = tables.by_product({("stale_8", "token_mask"): [rows]})
    assert table.splitlines()[-1] == "| token_mask | - | - | - | - | 0.20, 50% | 0.40, 50% | - |"


def test_the_page_holds_what_the_files_give(tmp_path):
    copy = tmp_path / "page.md"
    before, rest = PAGE.split(tables.BEGIN)
    copy.write_text(before + tables.BEGIN + tables.END + rest.split(tables.END)[1])
    tables.fill(copy, DOCS / "stability")
    assert copy.read_text() == PAGE


def test_the_page_says_which_runs_exist():
    said = re.search(r"\*\*(\d+) runs\*\* .*five seeds a line, and (\d+) of other settings", PAGE)
    assert int(said[1]) == len(RECORDED) == len(grid(list(ENGINES), ALGORITHMS, seeds=5))
    assert int(said[2]) == sum(len(setting.runs()) for setting in TRIED.values())
    assert sum(file.stat().st_size for file in (DOCS / "stability").rglob("*.csv")) < 4e6


def test_every_number_of_the_prose_is_in_a_table():
    prose, shown = PAGE.split("## What is seen")[1].split("\n## What this is not")[0], PAGE.split(tables.BEGIN)[1]
    numbers = re.findall(r"(?<![\w.])\d+\.\d+(?:e-\d+)?%?(?![\w.])|\d of \d(?! steps)", prose)
    assert len(numbers) > 60
    assert set(numbers) <= set(re.findall(r"\d of \d|[\d.]+(?:e-\d+)?%?", shown))


def test_no_step_comes_to_the_clamp():
    products = [row["length"] * abs(row["kl"]) for rows in RECORDED.values() for row in rows[1:]]
    assert max(products) < 20


@pytest.mark.parametrize(
    ("engine", "less", "more"),
    [("stale_8", "monitor", "token_truncate"), ("int4", "token_mask", "monitor")],
)
def test_what_is_said_to_be_ahead_in_every_seed_is(engine, less, more):
    finals = [
        [results.outcome(RECORDED[Run(engine, algorithm, seed)]).final for seed in range(1, 6)]
        for algorithm in (less, more)
    ]
    assert all(low < high for low, high in zip(*finals, strict=True))


def test_every_recorded_run_is_whole():
    for run, rows in RECORDED.items():
        assert [row["step"] for row in rows] == list(range(129)), run
        assert [row["step"] for row in rows if EVALUATED in row] == list(range(0, 129, 8)), run


@pytest.mark.parametrize("every", [8, 16])
def test_a_stale_engine_was_in_step_after_each_refresh_alone(every):
    for run, rows in RECORDED.items():
        if run.engine == f"stale_{every}":
            assert [row["step"] for row in rows[1:] if row["k3"] < 1e-7] == list(range(1, 129, every)), run


def test_the_figure_is_drawn_from_the_files(tmp_path):
    figure.draw(RECORDED, tmp_path / "figure.png")
    assert (tmp_path / "figure.png").stat().st_size > 20_000


def test_filters_leave_out_what_they_should():
    logits = torch.tensor([[0.5, 0.3, 0.17, 0.03]]).log()
    assert gradient.nucleus(logits).isfinite().tolist() == [[True, True, True, False]]
    assert gradient.likeliest(logits).isfinite().tolist() == [[True, True, False, False]]


def test_a_sequence_level_without_bounds_has_no_bias_and_a_filter_has():
    policy = tiny_llama()
    responses = gradient.sample(policy, sequences=16)(torch.Generator().manual_seed(0))
    engines = {name: logits for name, logits in gradient.engines_of(policy).items() if name in ("int4", "top-k 2")}
    found, mismatch = gradient.gradients(
        policy, responses, engines, {"none": None, "all": gradient.UNBOUNDED}, torch.arange(40_000, 50_000)
    )
    on_policy = found[gradient.ON_POLICY].norm()
    assert found["int4", "all"].norm() < 1e-4 * on_policy < found["int4", "none"].norm()
    assert found["top-k 2", "all"].norm() > 1e-2 * on_policy
    assert mismatch["int4"][1] == 0 < mismatch["top-k 2"][1] < 0.5
    assert mismatch["int4"][0].item() == pytest.approx(k3_by_hand(policy, engines["int4"], responses), rel=0.01)


@torch.no_grad()
def k3_by_hand(policy, engine, responses):
    """Over responses of the engine: each of the policy's counts as often as the engine would give it."""
    inputs, targets, mask = responses.token_ids[:, :-1], responses.token_ids[:, 1:, None], responses.response_mask
    train, rollout = (
        logits.double().log_softmax(-1).gather(-1, targets)[..., 0]
        for logits in (policy(inputs).logits, engine(inputs))
    )
    ratio = (train - rollout).exp().where(mask, 1.0)
    share = 1 / ratio.prod(1)
    return ((share * (ratio - 1 - ratio.log()).sum(1)).sum() / (share * mask.sum(1)).sum()).item()


def test_the_length_of_an_expectation_is_free_of_noise():
    noise = torch.randn(64, 100, generator=torch.Generator().manual_seed(0))
    length, low, high = gradient.relative_length(noise + 0.5, torch.ones(64, 100))
    assert 0.4 < low < length < high < 0.6
    length, low, high = gradient.relative_length(noise - noise.mean(0), torch.ones(64, 100))
    assert (length, low) == (0.0, 0.0)


def test_unbounded_weights_are_those_of_the_whole_response():
    old, rollout = torch.tensor([[-1.0, -2.0]]), torch.tensor([[-2.0, -4.0]])
    weight = importance_weights(old, rollout, torch.ones(1, 2), **gradient.UNBOUNDED).weight
    assert weight.log().tolist() == [[pytest.approx(3.0)] * 2]
