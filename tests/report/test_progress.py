"""How far the reading has come: a bar on a terminal, lines elsewhere."""

import io
import sys

import pytest

from lightning_rollout_is import event_files
from lightning_rollout_is.event_files import read_event_log
from lightning_rollout_is.report.progress import reading, working
from tests.report.written import event_file, truncate, write_run


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def folders(tmp_path):
    return [write_run(tmp_path / name, length=40) for name in ("a", "b")]


def read(folders, stream):
    with reading(folders, stream) as start:
        for folder in folders:
            read_event_log(folder, start(folder))
    return stream.getvalue()


def test_a_pipe_gets_a_line_a_folder(folders):
    assert read(folders, io.StringIO()) == f"reading {folders[0]}\nreading {folders[1]}\n"


def test_without_rich_a_terminal_gets_lines_as_well(folders, monkeypatch):
    monkeypatch.setitem(sys.modules, "rich.console", None)
    assert read(folders, Terminal()) == f"reading {folders[0]}\nreading {folders[1]}\n"


def test_a_terminal_gets_a_bar_that_is_taken_away(folders, monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "300")
    monkeypatch.delenv("NO_COLOR", raising=False)
    shown = read(folders, Terminal())
    size = sum(event_file(folder).stat().st_size for folder in folders)
    assert f"reading {folders[1]}" in shown
    assert f"{size / 1000:.1f}/{size / 1000:.1f} kB" in shown
    assert shown.endswith("\x1b[2K")


@pytest.mark.parametrize("spoil", [lambda file: None, truncate, lambda file: file.write_bytes(b"")])
def test_every_byte_is_told_of_once(tmp_path, monkeypatch, spoil):
    monkeypatch.setattr(event_files, "TELL_BYTES", 500)
    file = event_file(write_run(tmp_path, length=40))
    spoil(file)
    told = []
    read_event_log(tmp_path, told.append)
    assert sum(told) == file.stat().st_size
    assert max(told, default=0) < 1000 or spoil is truncate
    assert len(told) > 20 or file.stat().st_size == 0


def test_reading_says_nothing_unless_asked(folders):
    assert read_event_log(folders[0]).notes == []


def test_what_takes_a_while_is_said_on_a_terminal_alone(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    pipe, terminal = io.StringIO(), Terminal()
    for stream in (pipe, terminal):
        with working("judging", stream):
            pass
    assert pipe.getvalue() == ""
    assert "judging" in terminal.getvalue()
