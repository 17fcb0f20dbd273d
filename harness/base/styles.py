"""Colour and marker of each method, the same in figures, on pages and in MLflow."""

from hashlib import sha256

COLOURS = ("#0072B2", "#CC79A7", "#E69F00", "#009E73", "#8C6D31", "#7A5195", "#56B4E9", "#5A6B7B")
"""Colours that are distinct for the colour-blind, none of them red (collapse)."""
MARKERS = ("o", "v", "s", "^", "p", "X", "P", "h")
SHIPPED = (
    "task_arithmetic", "contrastive_decoding", "emso", "deliberate_imagination", "gradient_ascent",
    "gradient_difference", "kl_divergence", "npo", "simnpo", "rmu", "altpo", "npo_sam", "sga", "gru", "ihl", "satimp",
    "sugd", "memfree", "balanced_subnet", "pdu", "ceu", "kfac_edit", "repselect",
)  # fmt: skip
"""Methods whose place sets their style for life: new ones are appended."""


def method_style(name: str) -> tuple[str, str]:
    """Return a method's colour and marker, set by its name; a plugin from outside never has a shipped method's.

    Example:
        >>> method_style("emso"), method_style("my_method")
        (('#E69F00', 's'), ('#7A5195', 'h'))
    """
    hashed, size = int(sha256(name.encode()).hexdigest(), 16), len(COLOURS)
    slot = SHIPPED.index(name) if name in SHIPPED else 32 + hashed % 32
    return COLOURS[slot % size], MARKERS[(slot + 3 * (slot // size)) % size]
