"""What is made from the code when the site is built holds all of it, in the code's own words."""

import dataclasses
import doctest
import re

import pytest
import yaml
from extensions import configuration, health, markdown, modules
from extensions.generated import PARTS

import lightning_rollout_is
from lightning_rollout_is import RolloutISConfig
from lightning_rollout_is.health import Rules
from lightning_rollout_is.health.advice import ADVICE
from lightning_rollout_is.hydra_store import conf_directory
from tests.docs.pages import DOCS, text


def rows(table):
    """First cell to the others, of each row under the heads."""
    cells = [[cell.strip() for cell in line.strip("| ").split(" | ")] for line in table.splitlines() if line[:1] == "|"]
    return {first.strip("`"): rest for first, *rest in cells}


def test_every_key_of_the_algorithm_block_with_its_default():
    table = rows(configuration.algorithm().partition("\n\n")[0])
    for field in dataclasses.fields(RolloutISConfig):
        kind, default, allowed, meaning = table[field.name]
        assert yaml.safe_load(default.strip("`")) == field.default or float(default.strip("`")) == field.default
        assert allowed
        assert meaning
        assert kind != "``"


def test_what_is_allowed_are_the_words_of_the_error():
    table = rows(configuration.algorithm().partition("\n\n")[0])
    assert table["rollout_is_level"][2] == "token, sequence, geometric"
    assert table["rollout_is_threshold"][2] == "a finite number above 0, or null"
    assert rows(configuration.settings("lightning_rollout_is.RolloutISCallback"))["every_n_steps"][2] == "1 or more"


def test_recommended_ranges_are_those_that_are_warned_of():
    assert rows(configuration.algorithm())["geometric"] == ["1.0002 to 1.001"]


def test_every_preset_with_what_it_sets():
    table = rows(configuration.presets())
    for file in (conf_directory() / "algorithm").glob("*.yaml"):
        sets, when = table[f"algorithm={file.stem}"]
        values = yaml.safe_load("\n".join(re.findall(r"`([^`]*)`", sets)))
        written = yaml.safe_load(file.read_text())
        assert {f"rollout_is_{key}" if key != "rollout_is" else key: value for key, value in values.items()} == {
            key: value for key, value in written.items() if key != "defaults"
        }
        assert when.endswith(".")


@pytest.mark.parametrize(
    "group", sorted(folder.name for folder in conf_directory().iterdir() if folder.is_dir() and folder.name[0] != "_")
)
def test_every_group_and_option_is_on_the_page(group):
    asked = "{generated} presets" if group == "algorithm" else f"{{generated}} options {group}\n"
    assert asked in text("configuration")
    made = configuration.presets() if group == "algorithm" else configuration.options(group)
    for file in (conf_directory() / group).glob("[!_]*.yaml"):
        assert f"{group}={file.stem}" in made


def test_an_argument_that_its_docstring_leaves_out_is_an_error():
    with pytest.raises(ValueError, match="says nothing of"):
        configuration.settings("tests.docs.test_generated.rows")


def test_every_rule_with_its_causes_in_order_and_its_remedy():
    page = health.rules()
    sections = dict(re.findall(r"^### `(\w+)`\n(.*?)(?=^\(|\Z)", page, re.DOTALL | re.MULTILINE))
    assert sections.keys() == ADVICE.keys()
    for rule, section in sections.items():
        said = section.replace("`", "").lower()
        places = [said.index(cause.lower()) for cause in ADVICE[rule].causes]
        assert places == sorted(places)
        assert ADVICE[rule].remedy.lower() in said
        assert f"Default: `{getattr(Rules(), rule)}`" in section


def test_lines_of_configuration_are_set_as_code():
    assert "`algorithm.rollout_is_mode: truncate`" in health.rules()
    assert "`algorithm=token_truncate`" in health.rules()


def test_every_rule_is_in_the_index_of_symptoms():
    assert re.findall(r"\{ref\}`(\w+) <", health.symptoms()) == list(health.RULES)
    assert set(health.RULES) == ADVICE.keys()


def test_limits_of_a_metric():
    assert health.limits("rollout_is_eff_sample_size").startswith("Healthy: 0.5 or more; warning: under 0.3; judged by")
    assert health.limits("rollout_is_seq_min") == "No limit of its own."


def test_every_module_is_on_a_page_of_the_reference():
    pages = "".join(page.read_text() for page in (DOCS / "api").glob("*.md"))
    asked = re.findall(r"\{generated\} modules (\S+)", pages)
    covered = [name for package in asked for name in re.findall(r"automodule:: (\S+)", modules.modules(package))]
    assert sorted(covered) == sorted(set(modules.names_in("lightning_rollout_is")) - {"lightning_rollout_is"})


def test_every_name_of_the_front_door_is_in_the_reference():
    page = (DOCS / "api" / "index.md").read_text()
    documented = re.findall(r"auto(?:class|function):: lightning_rollout_is\.(\w+)$", page, re.MULTILINE)
    assert sorted(documented) == sorted(lightning_rollout_is.__all__)


def test_every_part_is_used():
    pages = "".join(page.read_text() for page in DOCS.rglob("*.md"))
    assert set(re.findall(r"\{generated\} (\w+)", pages)) == PARTS.keys()


@pytest.mark.parametrize("module", [markdown, health])
def test_examples_in_its_docstrings(module):
    assert doctest.testmod(module).failed == 0
