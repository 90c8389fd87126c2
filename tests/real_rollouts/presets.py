"""The presets of ``conf/algorithm``, composed as Hydra applications compose them."""

from hydra import compose, initialize_config_dir

from lightning_rollout_is import RolloutISConfig
from lightning_rollout_is.hydra_store import conf_directory


def read_presets() -> dict[str, RolloutISConfig]:
    """Every preset that measures anything, by its name."""
    files = sorted((conf_directory() / "algorithm").glob("*.yaml"))
    with initialize_config_dir(str(conf_directory()), version_base="1.3"):
        presets = {file.stem: RolloutISConfig.from_mapping(compose(f"algorithm/{file.stem}")) for file in files}
    return {name: config for name, config in presets.items() if config.enabled}


PRESETS = read_presets()
