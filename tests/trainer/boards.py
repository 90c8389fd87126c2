"""What TensorBoard gets beside scalars, read back from the event files."""

import re

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.plugins.custom_scalar.layout_pb2 import Layout
from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData


def events(folder):
    return EventAccumulator(str(folder), size_guidance={"scalars": 0, "tensors": 0, "histograms": 0}).Reload()


def texts(folder, tag="mismatch/health"):
    """(step, Markdown) of each text under a tag."""
    written = events(folder)
    name = f"{tag}/text_summary"
    found = written.Tensors(name) if name in written.Tags()["tensors"] else []
    return [(event.step, event.tensor_proto.string_val[0].decode()) for event in found]


def layout(folder):
    """Title of each category to its charts, from the last layout, which is the one that TensorBoard shows."""
    written = events(folder)
    if "custom_scalars__config__" not in written.Tags()["tensors"]:
        return {}
    content = written.Tensors("custom_scalars__config__")[-1].tensor_proto.string_val[0]
    return {category.title: list(category.chart) for category in Layout.FromString(content).category}


def curves_of(chart):
    """Patterns of a chart with lines, exact names of one with bands."""
    bands = [(series.value, series.lower, series.upper) for series in chart.margin.series]
    return list(chart.multiline.tag), bands


def drawn_in(chart, tags):
    """Which curves of a run TensorBoard draws in a chart."""
    patterns, bands = curves_of(chart)
    matched = {tag for tag in tags for pattern in patterns if re.match(pattern, tag)}
    return matched | {name for band in bands for name in band if name in tags}


def histograms(folder):
    """Tag to a list of (step, histogram)."""
    written = events(folder)
    return {tag: [(e.step, e.histogram_value) for e in written.Histograms(tag)] for tag in written.Tags()["histograms"]}


def hyperparameters(folder):
    """The settings on TensorBoard's page of hyperparameters, and the curves whose last values stand beside them."""
    found = events(folder).summary_metadata
    if "_hparams_/session_start_info" not in found:
        return {}, []
    started = HParamsPluginData.FromString(found["_hparams_/session_start_info"].plugin_data.content)
    experiment = HParamsPluginData.FromString(found["_hparams_/experiment"].plugin_data.content)
    settings = started.session_start_info.hparams
    shown = {key: getattr(value, value.WhichOneof("kind")) for key, value in settings.items()}
    return shown, [info.name.tag for info in experiment.experiment.metric_infos]
