"""The built wheel, in an environment of its own and an empty folder: a user's Hydra application trains one step."""

import os
import shutil
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

ROOT = Path(__file__).parents[2]
MAIN = """\
defaults:
  - algorithm: token_truncate
  - trainer: cpu
  - logger: tensorboard
  - callbacks: default
  - _self_
trainer: {max_steps: 1, enable_progress_bar: false}
"""


def run(*command: str | Path, cwd: Path = ROOT) -> str:
    clean = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "PIP_", "VIRTUAL_ENV"))}
    result = subprocess.run(command, cwd=cwd, env=clean, capture_output=True, text=True, timeout=120)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", folder, ROOT)
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def python(tmp_path_factory, wheel) -> Path:
    """Interpreter of an environment that holds the wheel, and sees the dependencies of this one.

    A ``.pth`` file lends the dependencies: unlike ``--system-site-packages`` it does not follow the ``.pth`` files
    over there, so an editable installation of this repository stays invisible.
    """
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder)
    interpreter = folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    run(sys.executable, "-m", "pip", "--python", interpreter, "install", "--no-deps", "--no-index", wheel)
    site = Path(run(interpreter, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip())
    (site / "dependencies.pth").write_text("\n".join({sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}))
    return interpreter


@pytest.fixture
def empty_folder(tmp_path) -> Path:
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "main.yaml").write_text(MAIN)
    shutil.copy(Path(__file__).with_name("user_app.py"), tmp_path)
    return tmp_path


def test_a_users_application_trains_one_step_from_an_empty_folder(python, empty_folder):
    output = run(python, "user_app.py", "hydra.run.dir=run", cwd=empty_folder)
    assert f"PACKAGE {python.parents[1]}" in output
    assert "STEPS 1" in output
    (events,) = (empty_folder / "run").rglob("events.out.tfevents.*")
    written = EventAccumulator(str(events)).Reload()
    steps = {tag: [point.step for point in written.Scalars(tag)] for tag in written.Tags()["scalars"]}
    mismatch = {tag for tag in steps if tag.startswith("mismatch/")}
    assert len(mismatch) >= 27
    assert {"mismatch/rollout_is_mean", "mismatch/rollout_is_eff_sample_size", "mismatch/mismatch_k3_kl"} <= mismatch
    assert all(steps[tag] == steps["loss"] == [0] for tag in mismatch)


def test_the_wheel_carries_its_licence_its_types_and_its_configuration(python):
    script = "import importlib.metadata as m; print(*m.files('lightning-rollout-is'), sep='\\n')"
    files = run(python, "-c", script).split()
    expected = {file.relative_to(ROOT) for file in (ROOT / "conf").rglob("*.yaml")}
    assert {f"lightning_rollout_is/{file.as_posix()}" for file in expected} <= set(files)
    assert "lightning_rollout_is/py.typed" in files
    assert any(file.endswith("licenses/LICENSE") for file in files)
    assert not [file for file in files if file.startswith(("tests", "examples", "benchmarks"))]
