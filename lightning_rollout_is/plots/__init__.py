"""Series of mismatch statistics as pictures: curves over bands, quantile fan, profile along the response, groups."""

from lightning_rollout_is.plots.figure import DETAILS, PANELS, PLOTS, plot_rollout_is
from lightning_rollout_is.plots.style import COLORS

__all__ = ["COLORS", "DETAILS", "PANELS", "PLOTS", "plot_rollout_is"]
