"""The table of tests/README.md: every fault has a line, and every test that a line names exists."""

import ast
import re
from functools import cache
from pathlib import Path

TESTS = Path(__file__).parents[1]
# Numbers that are missing belong to duplicates.
NUMBERS = (
    1, 3, 4, 5, 7, 8, 9, 10, 11, 12, 14, 15, 16, 17, 18, 19, 21, 22, 23, 25, 26, 27, 28, 29, 30, 31,
    32, 33, 35, 36, 37, 38, 39, 41, 42, 43, 44, 46, 47, 48, 49, 51, 52, 54, 55, 56, 57, 59, 60, 61,
    62, 63, 65, 66, 67, 68, 69, 70, 71, 72, 73, 74, 76, 77, 78, 79, 80, 81, 82,
)  # fmt: skip
FAULTS = [f"B{number:02}" for number in NUMBERS]
LINE = re.compile(r"^\| (B\d+) \| ([^|]+) \| ([^|]+) \|$", re.MULTILINE)
TEST = re.compile(r"`([^`]+\.py)::(\w+)`")


def lines() -> dict[str, str]:
    return {fault: tests for fault, _, tests in LINE.findall((TESTS / "README.md").read_text())}


@cache
def functions_of(file: str) -> set[str]:
    tree = ast.parse((TESTS / file).read_text())
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")}


def test_every_fault_has_a_line() -> None:
    assert list(lines()) == FAULTS


def test_every_line_names_tests_that_exist_or_says_why_it_needs_none() -> None:
    for fault, tests in lines().items():
        named = TEST.findall(tests)
        assert named or tests.startswith("cannot concern us: "), fault
        for file, name in named:
            assert name in functions_of(file), f"{fault}: {file}::{name}"
