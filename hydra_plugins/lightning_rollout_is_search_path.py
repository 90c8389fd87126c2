"""Hydra plugin: after an installation any Hydra application may write ``defaults: [algorithm: token_truncate]``.

``hydra_plugins`` is a namespace package that Hydra scans; it has no ``__init__.py``.
"""

from hydra.core.config_search_path import ConfigSearchPath
from hydra.plugins.search_path_plugin import SearchPathPlugin

from lightning_rollout_is.hydra_store import PROVIDER, conf_directory, register


class RolloutISSearchPath(SearchPathPlugin):
    """Appends the shipped ``conf``: last, so that an application's own groups and files keep precedence."""

    def manipulate_search_path(self, search_path: ConfigSearchPath) -> None:
        """Register the schemas, and append the directory of the YAML files that extend them."""
        register()
        search_path.append(provider=PROVIDER, path=f"file://{conf_directory().as_posix()}")
