"""The guide says no number that the tables beside it do not, and no setting that there is not."""

import re

import hydra
import pytest
import yaml
from extensions.generated import PARTS
from omegaconf import OmegaConf

from tests.docs.pages import DOCS, blocks, text

CONF = DOCS.parent / "conf"
PROSE = re.sub(r"```.*?```", "", text("guide"), flags=re.DOTALL)
NUMBER = re.compile(r"(?<![\w.])(?<!\d,)-?\d+(?:,\d{3})*(?:\.\d+)?(?:e-?\d+)?%?(?!\w)")
COUNT = re.compile(r"(?<![\d.])\d+ of \d+(?!\d|\.\d)")
CODE = re.compile(r"`[^`]*`")
LINK = re.compile(r"\]\((\w+)\.md(?:#([\w-]+))?\)")
HEADING = re.compile(r"(?:^\(([\w-]+)\)=\n)?^(#+) (.+)$", re.MULTILINE)
ROWS = {
    "vLLM, float32": "vllm_fp32",
    "llama.cpp, F16": "llama_cpp_f16",
    "vLLM, bfloat16": "vllm_bf16",
    "llama.cpp, Q4_1": "llama_cpp_q4_1",
    "llama.cpp, Q8_0": "llama_cpp_q8_0",
    "llama.cpp, Q4_0": "llama_cpp_q4_0",
}


def written(page):
    """A page with what is made for it when the site is built: parts from the code, and tables from files."""
    whole = re.sub(
        r"```\{generated\} (\w+) ?(\w*)\n```", lambda part: PARTS[part[1]](*filter(None, [part[2]])), text(page)
    )
    return re.sub(r"```\{csv-table\}\n:file: (.+)\n[^`]*```", lambda table: rows_of(table[1]), whole)


def rows_of(file):
    return (DOCS / file).read_text().replace(",", " | ")


def slug(title):
    return re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-")


def section(page, anchor):
    """From the heading of that name to the next of its level or above; the whole page if no name is given."""
    whole = written(page)
    if not anchor:
        return whole
    prose = re.sub(r"```.*?```", lambda block: " " * len(block[0]), whole, flags=re.DOTALL)
    headings = list(HEADING.finditer(prose))
    here = next(i for i, found in enumerate(headings) if anchor in (found[1], slug(found[3])))
    ends = [found.start() for found in headings[here + 1 :] if len(found[2]) <= len(headings[here][2])]
    return whole[headings[here].start() : ends[0] if ends else None]


def numbers(part):
    """Those that say something: one digit alone, such as the place in a list, is none of them."""
    plain = CODE.sub("", re.sub(r"\]\([^)]*\)", "]", part))
    return {number for number in [*NUMBER.findall(plain), *COUNT.findall(plain)] if not re.fullmatch(r"\d", number)}


def said():
    """Every paragraph, item and row of the guide, with the header of its table, whose links are of all rows."""
    for block in re.split(r"\n\n|\n(?=\d\. |- )", PROSE):
        if block.startswith("|"):
            header, _, *rows = block.splitlines()
            yield from ((row, header) for row in rows)
        elif not block.startswith(("#", "(")):
            yield block, ""


@pytest.mark.parametrize(("block", "header"), list(said()), ids=lambda part: part[:40])
def test_every_number_stands_in_a_section_that_the_link_beside_it_leads_to(block, header):
    links = LINK.findall(block + header)
    found = [section(page, anchor) for page, anchor in links]
    # Thresholds of presets stand in the blocks of the guide itself, which have a test of their own.
    assert numbers(block) <= set().union(*(numbers(part.replace("`", " ")) for part in found)), links


def cells(table_row):
    return [cell.strip() for cell in table_row.strip("|").split("|")]


def column(page, caption, name, keys=1):
    """A column of the table under that caption, by its first cells."""
    table = text(page).partition(caption)[2].split("\n\n")[1].splitlines()
    place = cells(table[0]).index(name)
    return {" ".join(cells(row)[:keys]): cells(row)[place] for row in table[2:]}


def test_the_table_by_engine_is_that_of_real_rollouts():
    _, _, rest = text("guide").partition("## By engine and length")
    rows = [cells(row) for row in rest.splitlines() if row.startswith(("| vLLM", "| llama.cpp"))]
    k3 = column("real_rollouts", "**KL and K3", "K3")
    outside = [column("real_rollouts", "**Outside [1/2, 2]", tokens) for tokens in ("16", "48")]
    kept = [
        column("real_rollouts", "**Effective sample size of the weights", preset)
        for preset in ("token_truncate", "sequence_truncate")
    ]
    engines = {name: ROWS[name] for name, *_ in rows}
    assert list(engines) == list(ROWS)
    for name, *values, _ in rows:
        row = ROWS[name]
        assert values == [k3[row], ", ".join(part[row] for part in outside), *(part[row] for part in kept)]


@pytest.mark.parametrize(
    ("sentence", "name", "rows"),
    [
        (
            "the final reward was {} without correction and {} with it; sixteen behind, {} and {}",
            "final",
            ["stale_8 monitor", "stale_8 token_truncate", "stale_16 monitor", "stale_16 token_truncate"],
        ),
        (
            "it ended at {} against {} eight steps behind, and at {} against {} sixteen",
            "final",
            ["stale_8 token_mask", "stale_8 token_truncate", "stale_16 token_mask", "stale_16 token_truncate"],
        ),
        (
            "`bf16`, `int8` and `int4` ended at {}, {} and {}, on policy at {}",
            "final",
            ["bf16 monitor", "int8 monitor", "int4 monitor", "fp32 monitor"],
        ),
        ("`int4` ended at {} with it and at {} without", "final", ["int4 token_truncate", "int4 monitor"]),
        (
            "where `token_truncate` ended at {} and on policy at {}",
            "final",
            ["stale_16 token_truncate", "fp32 monitor"],
        ),
        ("{} runs with it collapsed, and {} without", "collapsed", ["stale_16 token_truncate", "stale_16 monitor"]),
        ("Sixteen steps behind, {} runs with it", "collapsed", ["stale_16 sequence_mask"]),
        (
            "uncorrected runs {} collapsed eight steps behind and {} sixteen",
            "collapsed",
            ["stale_8 monitor", "stale_16 monitor"],
        ),
        ("with fresh weights in bfloat16 {}, to", "collapsed", ["bf16 geometric_mask"]),
        ("bfloat16 5 of 5, to {}, where", "final", ["bf16 geometric_mask"]),
        ("collapsed, to {} and {}, and with", "final", ["stale_8 geometric_mask", "stale_16 geometric_mask"]),
        (
            "Of its stale runs {} and {} collapsed",
            "collapsed",
            ["stale_8 geometric_mask", "stale_16 geometric_mask"],
        ),
    ],
)
def test_what_is_said_of_training_is_of_the_right_rows(sentence, name, rows):
    table = column("stability", "What became of the runs.", name, keys=2)
    assert sentence.format(*(table[row] for row in rows)) in re.sub(r"\s+", " ", PROSE)


@pytest.mark.parametrize("block", blocks("guide", "yaml"), ids=lambda block: block.splitlines()[0])
def test_a_block_of_yaml_is_the_preset_that_it_names(block):
    name = re.match(r"# algorithm=(\w+)\n", block)[1]
    preset = yaml.safe_load((CONF / "algorithm" / f"{name}.yaml").read_text())
    del preset["defaults"]
    assert yaml.safe_load(block) == {"algorithm": preset}


OVERRIDES = sorted(
    {code for code in re.findall(r"`([^`]+)`", PROSE) if re.match(r"(algorithm|callbacks|rollout|actor)\S*=", code)}
)


@pytest.mark.parametrize("line", OVERRIDES)
def test_every_line_to_set_can_be_set(line):
    overrides = line.split()
    if not any(override.startswith("rollout=") for override in overrides):
        # Filters are settings of engines that have them.
        overrides = ["rollout=vllm", *overrides]
    with hydra.initialize_config_dir(str(CONF), version_base="1.3"):
        config = hydra.compose("train", overrides=overrides)
    for override in overrides:
        key, _, value = override.partition("=")
        if "." in key:
            assert OmegaConf.select(config, key) == yaml.safe_load(value)


def test_every_preset_that_can_be_recommended_is():
    presets = {file.stem for file in (CONF / "algorithm").glob("*.yaml")} - {"off", "asymmetric"}
    assert {re.match(r"# algorithm=(\w+)", block)[1] for block in blocks("guide", "yaml")} == presets
