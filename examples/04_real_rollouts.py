"""What real engines do to a real model: SmolLM2-135M-Instruct, sampled by llama.cpp and vLLM, scored again by PyTorch.

From the log-probs of the sampled tokens alone: how far each engine is from the trainer, and what every preset of
``conf/algorithm`` would do about it, before a single step of training::

    python examples/04_real_rollouts.py
    python examples/04_real_rollouts.py --figure real_rollouts.png
    python examples/04_real_rollouts.py rollouts_of_my_engine.jsonl

A file holds one JSON object a response, with the lists ``rollout_logprobs`` (as the engine gave them) and
``training_logprobs`` (the same tokens scored by the trainer).
"""

import argparse
import json
import textwrap
from pathlib import Path
from typing import NamedTuple

import torch
from hydra import compose, initialize_config_dir
from rich.console import Console
from rich.table import Table
from torch.nn.utils.rnn import pad_sequence

from lightning_rollout_is import RolloutISConfig, RolloutISMetrics
from lightning_rollout_is.health import check
from lightning_rollout_is.hydra_store import conf_directory

RECORDED = Path(__file__).parents[1] / "tests" / "real_rollouts" / "data"
PRESETS = ("token_truncate", "token_mask", "asymmetric", "sequence_truncate", "sequence_mask", "geometric_mask")
LENGTHS = (1, 4, 16, 32, 48)
QUANTILES = ("p01", "p05", "p50", "p95", "p99")
VERDICTS = "Rules of RolloutISHealth that are broken, and under which presets"
FACTOR_OF_2 = RolloutISConfig(2.0, rollout_is_level="sequence", rollout_is_mode="mask")


class Engine(NamedTuple):
    """What was measured on the rollouts of one engine."""

    name: str
    log_ratio: torch.Tensor
    """Of each token, nats."""
    values: dict[str, dict[str, float]]
    """By preset, by length that the responses are cut to, and without any bounds ("raw")."""


class Column(NamedTuple):
    """Where the numbers of a column are found, and how many digits they are worth."""

    heading: str
    key: str
    statistic: str
    digits: str


def of_presets(statistic, masking_statistic=None):
    """A column for each preset."""
    masks = {preset: preset.endswith("mask") or preset == "asymmetric" for preset in PRESETS}
    return tuple(
        Column(preset, preset, masking_statistic if masking_statistic and masks[preset] else statistic, ".1%")
        for preset in PRESETS
    )


BOUNDED = "What each preset truncates or masks: tokens (under sequence_truncate: responses)"
TABLES = {
    "KL and K3, nats a token, and |p - q| of the two probabilities of a token": (
        Column("tokens", "raw", "tokens", ".0f"),
        Column("KL", "token_truncate", "mismatch_kl", ".2g"),
        Column("+-", "token_truncate", "mismatch_kl_stderr", ".2g"),
        Column("K3", "token_truncate", "mismatch_k3_kl", ".2g"),
        Column("mean |p-q|", "token_truncate", "mismatch_probs_diff_mean", ".2g"),
        Column("largest |p-q|", "token_truncate", "mismatch_probs_diff_max", ".2g"),
        Column("confident, not shared", "token_truncate", "mismatch_confident_disagreement_fraction", ".1%"),
    ),
    "Quantiles of the log ratio, nats": (
        *(Column(name, "token_truncate", f"mismatch_log_ratio_{name}", ".2g") for name in QUANTILES),
        Column("largest", "raw", "largest_log_ratio", ".3g"),
    ),
    "Perplexity, and mean |log ratio| in three tenths of the response": (
        Column("rollout PPL", "token_truncate", "mismatch_rollout_ppl", ".2f"),
        Column("training PPL", "token_truncate", "mismatch_training_ppl", ".2f"),
        Column("PPL ratio", "token_truncate", "mismatch_ppl_ratio", ".4f"),
        *(
            Column(tenth, "token_truncate", f"mismatch_abs_log_ratio_decile_{number}", ".2g")
            for tenth, number in (("first", "01"), ("fifth", "05"), ("last", "10"))
        ),
    ),
    "Effective sample size (logged: weights clamped to the bounds; raw: not), and chi-square": (
        Column("token", "token_truncate", "rollout_is_eff_sample_size", ".3f"),
        Column("token, raw", "raw", "token_eff_sample_size", ".3f"),
        Column("token, chi2", "token_truncate", "mismatch_chi2_token", ".3f"),
        Column("seq.", "sequence_truncate", "rollout_is_eff_sample_size", ".3f"),
        Column("seq., raw", "raw", "sequence_eff_sample_size", ".3f"),
        Column("seq., chi2", "sequence_truncate", "mismatch_chi2_seq", ".3f"),
        Column("seq., mean", "sequence_truncate", "rollout_is_seq_mean", ".3g"),
        Column("geometric", "geometric_mask", "rollout_is_eff_sample_size", ".3f"),
    ),
    "Outside [1/2, 2]: tokens, and responses cut to this many tokens": (
        Column("tokens", "token_mask", "rollout_is_masked_fraction", ".1%"),
        *(Column(str(length), f"first {length}", "rollout_is_seq_masked_fraction", ".1%") for length in LENGTHS),
        Column("vetoed", "token_mask", "rollout_is_veto_fraction", ".1%"),
    ),
    BOUNDED: of_presets("rollout_is_ratio_fraction_high", "rollout_is_masked_fraction"),
    "Effective sample size of the weights that multiply the loss": of_presets("rollout_is_applied_eff_sample_size"),
}


def main():
    parser = argparse.ArgumentParser(description="Mismatch of recorded rollouts, and what each preset would do.")
    parser.add_argument("files", nargs="*", type=Path, default=sorted(RECORDED.glob("*.jsonl")), help="JSON lines")
    parser.add_argument("--figure", help="where to save a figure")
    parser.add_argument("--markdown", action="store_true", help="the tables as docs/real_rollouts.md holds them")
    options = parser.parse_args()
    engines = examine(options.files)
    show = print_markdown if options.markdown else print_table
    for title, columns in TABLES.items():
        show(title, ["engine", *(column.heading for column in columns)], cells(engines, columns))
    show(VERDICTS, ["engine", "rules", "presets"], verdicts(engines))
    if options.figure:
        draw(engines, options.figure)
        print(f"figure: {options.figure}")


def examine(files):
    """Measure each file; the smallest mismatch comes first."""
    with initialize_config_dir(str(conf_directory()), version_base="1.3"):
        presets = {name: RolloutISConfig.from_mapping(compose(f"algorithm/{name}")) for name in PRESETS}
    engines = [examine_one(file, presets) for file in files]
    return sorted(engines, key=lambda engine: engine.values["token_truncate"]["mismatch_k3_kl"])


def examine_one(file, presets):
    rollouts = old, rollout, mask = read(file)
    log_ratio = old - rollout
    tokens = log_ratio[mask.bool()]
    values = {name: measure(rollouts, config) for name, config in presets.items()}
    for length in LENGTHS:
        values[f"first {length}"] = measure([tensor[:, :length] for tensor in rollouts], FACTOR_OF_2)
    values["raw"] = {
        "tokens": len(tokens),
        "largest_log_ratio": tokens.abs().max().item(),
        "token_eff_sample_size": eff_sample_size(tokens),
        "sequence_eff_sample_size": eff_sample_size(log_ratio.sum(1)),
    }
    return Engine(file.stem, tokens, values)


def read(file):
    """Training and rollout log-probs, padded to (responses, tokens), and the mask of what is no padding."""
    responses = [json.loads(line) for line in file.read_text().splitlines()]
    old, rollout = (
        [torch.tensor(response[key], dtype=torch.float64) for response in responses]
        for key in ("training_logprobs", "rollout_logprobs")
    )
    return [pad_sequence(rows, batch_first=True) for rows in (old, rollout, [torch.ones(len(row)) for row in old])]


def measure(rollouts, config):
    """Every statistic by its name, as the callback would log it."""
    metrics = RolloutISMetrics(config, prefix="", details=True)
    metrics.update(*rollouts)
    return {name: value.item() for name, value in metrics.compute().items()}


def eff_sample_size(log_weight):
    """Of weights without bounds, as a share of their number."""
    weight = (log_weight - log_weight.max()).exp()
    return (weight.sum() ** 2 / weight.square().sum() / len(weight)).item()


def cells(engines, columns):
    return [
        [engine.name, *(format(engine.values[key][statistic], digits) for _, key, statistic, digits in columns)]
        for engine in engines
    ]


def verdicts(engines):
    """Engine, rules that one point of it breaks, and the presets under which it does."""
    return [[engine.name, *row] for engine in engines for row in broken_rules(engine) or [["none", "any"]]]


def broken_rules(engine):
    presets_of = {}
    for preset in PRESETS:
        for finding in check(engine.values[preset], prefix=""):
            presets_of.setdefault(finding.rule, []).append(preset)
    together = {}
    for rule, presets in presets_of.items():
        together.setdefault("every" if len(presets) == len(PRESETS) else ", ".join(presets), []).append(rule)
    return [[", ".join(rules), presets] for presets, rules in together.items()]


def print_table(title, header, rows):
    table = Table(title=title, title_justify="left", box=None, padding=(0, 1, 0, 0), pad_edge=False)
    numbers = {} if title == VERDICTS else {"justify": "right", "no_wrap": True}
    for heading in header:
        words = heading.replace("_", " ")
        table.add_column(textwrap.fill(words, max(map(len, words.split()))), **numbers)
    table.columns[0].justify, table.columns[0].no_wrap = "left", True
    for row in rows:
        table.add_row(*row)
    Console().print(table, "")


def print_markdown(title, header, rows):
    header = [heading.replace("|", r"\|") for heading in header]
    rule = ["---", *["---" if title == VERDICTS else "---:"] * (len(header) - 1)]
    lines = [header, rule, *rows]
    print(f"**{title}**\n", *("| " + " | ".join(line) + " |" for line in lines), "", sep="\n")


def draw(engines, path):
    """The spread of log ratios, what length does to a sequence's weight, and what each preset bounds."""
    from matplotlib import colormaps
    from matplotlib.figure import Figure

    figure = Figure(figsize=(13, 4.4), layout="constrained")
    spread, by_length, preset_map = figure.subplots(1, 3, width_ratios=(4, 4, 5))
    for rank, engine in enumerate(engines):
        style = {"label": engine.name, "color": colormaps["turbo"](0.05 + 0.9 * rank / max(len(engines) - 1, 1))}
        sizes = engine.log_ratio.abs().sort(descending=True).values
        spread.loglog(sizes.clamp(min=1e-6), torch.arange(1, len(sizes) + 1) / len(sizes), **style)
        outside = [engine.values[f"first {length}"]["rollout_is_seq_masked_fraction"] for length in LENGTHS]
        by_length.plot(LENGTHS, outside, marker="o", **style)
    spread.set(title="Tokens whose |log ratio| is at least x", xlabel="x, nats", ylabel="share of tokens")
    by_length.set(
        title="Responses with a weight outside [1/2, 2]", xlabel="tokens of each", ylabel="share of responses"
    )
    by_length.legend(fontsize="small", loc=(0.42, 0.41))
    draw_presets(preset_map, engines)
    figure.savefig(path, dpi=110)


def draw_presets(axes, engines):
    share = [[engine.values[key][statistic] for _, key, statistic, _ in TABLES[BOUNDED]] for engine in engines]
    axes.imshow(share, cmap="Reds", vmin=0, vmax=1, aspect="auto")
    axes.set_xticks(range(len(PRESETS)), PRESETS, rotation=25, ha="right")
    axes.set_yticks(range(len(engines)), [engine.name for engine in engines])
    axes.set_title("Share that each preset truncates or masks")
    for row, values in enumerate(share):
        for column, value in enumerate(values):
            axes.text(column, row, f"{value:.1%}", ha="center", va="center", color="white" if value > 0.6 else "black")


if __name__ == "__main__":
    main()
