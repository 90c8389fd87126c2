"""What Sphinx is given beyond its own: formulas, and names that find what they mean."""

import re
from types import SimpleNamespace

import pytest
from extensions import formulas, references
from extensions.generated import PARTS

from tests.docs.pages import DOCS


def treated(what, *lines):
    lines = list(lines)
    references.find_anywhere(None, what, "", None, None, lines)
    return lines


def test_a_formula_is_a_drawing_in_the_text_s_colour_that_can_be_read_aloud():
    drawing = formulas.drawn(r"\frac{1}{N} \sum_t w_t", inline=True)
    assert drawing.startswith("<svg")
    assert 'aria-label="\\frac{1}{N} \\sum_t w_t"' in drawing
    assert "currentColor" in drawing
    assert not re.search(r"\bid=|<symbol|http(?!://www.w3.org/)", drawing)


def test_a_formula_in_a_line_hangs_below_it_and_one_alone_does_not():
    depth = re.compile(r"vertical-align: (-?[\d.]+)em")
    assert float(depth.search(formulas.drawn(r"\frac{1}{2}", inline=True))[1]) < 0
    assert float(depth.search(formulas.drawn(r"\frac{1}{2}", inline=False))[1]) == 0


def test_the_indicator_is_not_a_plain_one():
    indicator, plain = (formulas.drawn(latex, inline=True).split("aria-label")[1] for latex in (r"\mathbb{1}", "1"))
    assert indicator.partition(">")[2] != plain.partition(">")[2]


@pytest.mark.parametrize(
    ("written", "found"),
    [
        (":class:`Rules`", ":class:`.Rules`"),
        (":meth:`~torch.Tensor.item`", ":meth:`~torch.Tensor.item`"),
        (":class:`~lightning_rollout_is.health.Rules`", ":class:`~lightning_rollout_is.health.Rules`"),
        (":func:`lightning_rollout_is.f`", ":func:`lightning_rollout_is.f`"),
        (":class:`the rules <Rules>`", ":class:`the rules <Rules>`"),
        ("``Rules`` and :math:`x`", "``Rules`` and :math:`x`"),
    ],
)
def test_short_names_are_looked_for_in_every_module(written, found):
    assert treated("function", f"See {written}.") == [f"See {found}."]


def test_a_colon_in_the_docstring_of_an_attribute_is_no_type():
    from sphinx.ext.napoleon import Config
    from sphinx.ext.napoleon.docstring import GoogleDocstring

    lines = treated("attribute", "Share of the batch: 0 to 1.")
    said = GoogleDocstring(lines, Config(), what="attribute", name="share").lines()
    assert not any(line.startswith(":type:") for line in said)
    assert "Share of the batch: 0 to 1." in said


def test_fields_without_a_docstring_say_nothing():
    assert treated("function", "Alias for field number 3") == []


def test_links_to_files_outside_the_site_go_to_their_pages():
    source = ["[figures](../benchmarks/RESULTS.md)"]
    references.on_the_site(None, "cost", source)
    assert source == ["[figures](results.md)"]
    source = ["see [`the data`](../tests/data) and [cost](cost.md)"]
    references.on_the_site(None, "cost", source)
    assert source == ["see `the data` and [cost](cost.md)"]


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("Mean |log ratio| clamped.", "Mean \\|log ratio| clamped."),
        (">>> a | b | c", ">>> a | b | c"),
        ("``|p - q|`` and ``x | y``", "``|p - q|`` and ``x | y``"),
    ],
)
def test_a_size_between_bars_is_no_substitution(written, said):
    assert treated("function", written) == [said]


@pytest.mark.parametrize("page", sorted(DOCS.rglob("*.md")), ids=lambda page: page.stem)
def test_links_work_in_the_repository_too(page):
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text()):
        assert (page.parent / target).exists(), target


@pytest.mark.parametrize("part", ["symptoms", "rules", "algorithm", "presets", "thresholds"])
def test_no_role_of_a_docstring_is_left_in_markdown(part):
    assert not re.search(r"(?<!\})(?<!\{):(?:class|func|meth):`|``", PARTS[part]().replace("```", ""))


def test_a_name_that_is_passed_on_is_looked_for_at_home_and_at_the_front_door():
    asked = []

    def resolve_xref(env, page, builder, kind, target, node, text):
        asked.append(target)

    env = SimpleNamespace(get_domain=lambda name: SimpleNamespace(resolve_xref=resolve_xref))
    node = {"refdomain": "py", "reftarget": "lightning_rollout_is.functional.importance_weights", "reftype": "func"}
    node |= {"refdoc": "api/metrics"}
    assert references.find_home(SimpleNamespace(builder=None), env, node, None) is None
    assert asked == [
        "lightning_rollout_is.functional.weights.importance_weights",
        "lightning_rollout_is.importance_weights",
    ]
    assert references.find_home(SimpleNamespace(builder=None), env, node | {"reftarget": "torch.Tensor"}, None) is None
