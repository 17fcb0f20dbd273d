"""What the logged model of a point holds, whose erased model a sweep kept: MLflow's page *Models* lists these.

It says what the model is, what was measured of it and where it lies. The weights stay in the results folder.
"""

from __future__ import annotations

import shlex

from harness.records.point_names import point_name
from harness.records.record import kept_name
from harness.records.results import PointResults
from harness.records.tracking.runs import DataSet, KeptModel

_IN_A_NAME = str.maketrans({":": " ", ".": ",", "/": "_", "%": "_", '"': "_", "'": "_"})
"""What MLflow refuses in a model's name, and what stands there instead."""


def kept_model(point: PointResults, results_name: str) -> KeptModel:
    """Return what the logged model of a measured point is to hold.

    Args:
        point: One whose erased model was kept.
        results_name: What the results folder is called.
    """
    spec, point_id = point.spec, point.spec.point_id(point.strength)
    name = f"{spec.sweep}:{point_name(point)}"
    elsewhere = [] if results_name == "results" else ["--results", results_name]
    out = f"{spec.sweep}-{point_name(point)}"
    export = shlex.join(["lethe", "export", f"{spec.sweep}:{point_id}", *elsewhere, "--out", out])
    data_sets = {}
    for measurement in point.measurements:
        for metric in measurement.metrics:
            if behind := spec.texts_behind(metric["group"]):
                data_sets[metric["group"]] = DataSet.of(*behind)
    about = f"`{export}` writes it as a folder for `from_pretrained`."
    kept = kept_name(point_id, point.made.code if point.made else "")
    tags = {
        "point": name,
        "kept_in": f"artifacts/erased/{kept}",
        "export": export,
        "mlflow.note.content": about,
    }
    return KeptModel(model_name(name), tags, data_sets)


def model_name(name: str) -> str:
    """Return a point's name as MLflow takes it for a model: it allows neither `:` nor `.`.

    Example:
        >>> model_name("letters:task_arithmetic@0.05")
        'letters task_arithmetic@0,05'
    """
    return name.translate(_IN_A_NAME)
