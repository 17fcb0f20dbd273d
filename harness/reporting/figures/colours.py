"""Colours that can be read: how far a text stands out from its ground, and figures for a dark page."""

from __future__ import annotations

import re

LEGIBLE = 4.5
"""The least contrast of a text with its ground. Source: WCAG 2.2, success criterion 1.4.3."""
WHITE, BLACK = "#ffffff", "#000000"
DARK_PAGE, DARK_INK = "#14171c", "#e4e7eb"
"""The report's own ground and ink in dark mode."""
_GREY = 24
"""The most that the channels of a grey differ."""
_STEPS = 100
_DRAWN = re.compile(r"\b(fill|stroke): (#[0-9a-f]{6})\b")


def contrast(colour: str, ground: str) -> float:
    """Return the ratio of the two colours' luminances, from 1 (equal) to 21 (black and white).

    Source: WCAG 2.2, "contrast ratio" and "relative luminance".

    Example:
        >>> contrast("#000000", "#ffffff"), round(contrast("#777777", "#ffffff"), 2)
        (21.0, 4.48)
    """
    low, high = sorted((_luminance(colour), _luminance(ground)))
    return (high + 0.05) / (low + 0.05)


def _luminance(colour: str) -> float:
    shares = [channel / 255 for channel in _channels(colour)]
    red, green, blue = (share / 12.92 if share <= 0.04045 else ((share + 0.055) / 1.055) ** 2.4 for share in shares)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def text_colour(colour: str, ground: str = WHITE) -> str:
    """Return the colour itself where a text of it is legible on the ground, else the nearest darker or lighter one.

    Example:
        >>> text_colour("#0072b2"), text_colour("#e69f00"), text_colour("#0072b2", BLACK)
        ('#0072b2', '#9c6c00', '#127cb7')
    """
    end = max((BLACK, WHITE), key=lambda extreme: contrast(extreme, ground))
    mixtures = (mixed(colour, end, step / _STEPS) for step in range(_STEPS + 1))
    return next(mixture for mixture in mixtures if contrast(mixture, ground) >= LEGIBLE)


def mixed(colour: str, other: str, share: float) -> str:
    """Return a colour with this share of another in it.

    Example:
        >>> mixed("#000000", "#ffffff", 0.2)
        '#333333'
    """
    pairs = zip(_channels(colour), _channels(other), strict=True)
    return "#" + "".join(f"{round(one + share * (two - one)):02x}" for one, two in pairs)


def dark_colour(colour: str) -> str:
    """Return what a colour of a figure on white is on the dark page: greys turn around, the others are legible there.

    Example:
        >>> dark_colour("#ffffff"), dark_colour("#000000"), dark_colour("#0072b2")
        ('#14171c', '#e4e7eb', '#2687be')
    """
    channels = _channels(colour)
    if max(channels) - min(channels) <= _GREY:
        return mixed(DARK_INK, DARK_PAGE, sum(channels) / 3 / 255)
    return text_colour(colour, DARK_PAGE)


def with_dark_colours(svg: bytes) -> bytes:
    """Return matplotlib's SVG with a style sheet for dark pages; as a file or in print it looks as before.

    What has no colour of its own is black, and gets the dark page's ink.
    """
    text = svg.decode()
    used = sorted(set(_DRAWN.findall(text)))
    rules = [f'[style*="{part}: {colour}"]{{{part}:{dark_colour(colour)}!important}}' for part, colour in used]
    style = f"<style>@media screen and (prefers-color-scheme:dark){{svg{{fill:{DARK_INK}}}{''.join(rules)}}}</style>"
    return re.sub(r"<svg\b[^>]*[^/]>", lambda opening: opening[0] + style, text, count=1).encode()


def _channels(colour: str) -> tuple[int, int, int]:
    red, green, blue = (int(colour[at : at + 2], 16) for at in (1, 3, 5))
    return red, green, blue
