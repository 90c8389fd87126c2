"""``examples/compare_engines.py`` as a user starts it."""

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[2] / "examples" / "compare_engines.py"


def rows(*arguments):
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "200"}
    command = [sys.executable, str(EXAMPLE), "--prompts", "4", "--tokens", "6", *arguments]
    finished = subprocess.run(command, capture_output=True, text=True, timeout=240, env=environment)
    assert finished.returncode == 0, finished.stderr
    cells = [line.split("│")[1:-1] for line in finished.stdout.splitlines() if line.startswith("│")]
    return {name.strip(): [cell.strip() for cell in row] for name, *row in cells}, finished.stdout


def test_the_table_orders_engines_by_their_bits():
    table, _ = rows("--only", "CTranslate2")
    greatest = {name: float(cells[6]) for name, cells in table.items()}
    assert greatest["CTranslate2 float32"] < 1e-4 < greatest["CTranslate2 int8"]
    assert greatest["CTranslate2, weights bf16"] < greatest["CTranslate2, weights int4"]
    assert all(4 * 8 <= int(cells[0]) <= 4 * 8 * 6 for cells in table.values())


@pytest.mark.skipif(find_spec("vllm") is not None, reason="vllm is installed")
def test_an_engine_that_is_not_installed_is_named_with_what_to_install():
    table, output = rows("--only", "vLLM float32")
    assert table == {}
    assert "vLLM float32: vllm is not installed; install it with: pip install" in output
