"""The example on real rollouts, and the page that shows what it prints."""

import importlib.util
import json
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "04_real_rollouts.py"
PAGE = ROOT / "docs" / "real_rollouts.md"


@pytest.fixture(scope="module")
def example() -> ModuleType:
    specification = importlib.util.spec_from_file_location("real_rollouts_example", EXAMPLE)
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


@pytest.fixture
def run(example: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    """``run(*arguments)``: what the example prints, on a terminal of 80 columns."""
    monkeypatch.setenv("COLUMNS", "80")

    def printed(*arguments: str) -> str:
        monkeypatch.setattr(sys, "argv", [str(EXAMPLE), *arguments])
        example.main()
        return capsys.readouterr().out

    return printed


def test_the_page_holds_every_table_as_the_example_prints_it(run: Any) -> None:
    page = PAGE.read_text()
    tables = re.findall(r"\*\*.+?\*\*\n\n(?:\|.*\n)+", run("--markdown"))
    assert len(tables) == 8
    for table in tables:
        columns = {len(re.findall(r"(?<!\\)\|", line)) for line in table.splitlines()[2:]}
        assert len(columns) == 1, f"a cell of this table breaks it:\n{table}"
        assert table in page, f"docs/real_rollouts.md differs from {EXAMPLE.name} --markdown:\n{table}"
    assert page.count("\n| --- | ---") == len(tables)


def test_nothing_is_cut_off_on_a_narrow_terminal(run: Any) -> None:
    printed = run()
    assert "…" not in printed
    for mark in ("%", "geometric", "masked_fraction"):
        assert printed.count(mark) == run("--markdown").count(mark), mark
    assert max(map(len, printed.splitlines())) <= 80
    first = re.findall(r"^(\w+) +\d{4} ", printed, re.MULTILINE)
    assert [first[0], first[-1]] == ["vllm_fp32", "llama_cpp_q4_0"]  # by K3
    assert len(first) == 8


def test_rollouts_of_ones_own_and_a_figure(run: Any, tmp_path: Path) -> None:
    responses = [
        {"rollout_logprobs": [-1.0, -0.5, -2.0], "training_logprobs": [-1.0, -0.5, -2.0]},
        {"rollout_logprobs": [-1.0], "training_logprobs": [-2.0]},
    ]
    file, figure = tmp_path / "mine.jsonl", tmp_path / "mine.png"
    file.write_text("".join(json.dumps(response) + "\n" for response in responses))
    printed = run(str(file), "--markdown", "--figure", str(figure))
    assert "| mine | 4 | 0.25 |" in printed
    assert "| mine | 25.0% | 50.0% | 50.0% | 50.0% | 50.0% | 50.0% | 0.0% |" in printed
    assert f"figure: {figure}" in printed
    assert figure.read_bytes().startswith(b"\x89PNG")
