"""Tables of points: what a test does not name is what a sound method has."""

from evaluators.generation import Generation
from evaluators.memorization import Memorization
from harness.analysis.metrics import sort_by_column

SHIPPED = sort_by_column([*Memorization(n=10).metrics[:1], *Memorization().metrics, *Generation().metrics])


def known(table):
    """Return the shipped metrics that a table has."""
    return {name: metric for name, metric in SHIPPED.items() if name in table.columns}


def filled(frame, **columns):
    """Return the frame with the columns that ranking asks for."""
    rows = len(frame)
    others = {"model": "m", "replicate_of": "", "method": frame["variant"], "label": frame["variant"].str.upper()}
    others |= {"reference": "none", "seed": 0, "strength_name": "gamma", "strength": 1.0, "definition": "exact"}
    others |= {"ranked": True, "control": False, "collapsed": False, "over_erased": None, "until": [""] * rows}
    others |= {"collapse_class": "healthy", "collapse_reason": [()] * rows, "judged_by_original": "", "trial_id": "t"}
    others |= {"point_id": [f"p{row}" for row in range(rows)]}
    return frame.assign(**{name: others[name] for name in others if name not in frame}).assign(**columns)
