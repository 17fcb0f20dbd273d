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
    luminance = 0.0
    for channel, weight in zip(_channels(colour), (0.2126, 0.7152, 0.0722), strict=True):
        share = channel / 255
        luminance += weight * (share / 12.92 if share <= 0.04045 else ((share + 0.055) / 1.055) ** 2.4)
    return luminance


def text_colour(colour: str, ground: str = WHITE) -> str:
    """Return the colour itself where a text of it is legible on the ground, else the nearest darker or lighter one.

    Example:
        >>> text_colour("#0072b2"), text_colour("#e69f00"), text_colour("#0072b2", BLACK)
        ('#0072b2', '#9c6c00', '#127cb7')
    """
    end = max((BLACK, WHITE), key=lambda extreme: contrast(extreme, ground))
    for step in range(_STEPS + 1):
        mixture = mixed(colour, end, step / _STEPS)
        if contrast(mixture, ground) >= LEGIBLE:
            break
    return mixture


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
    rules = f"svg{{fill:{DARK_INK}}}"
    for part, colour in sorted(set(_DRAWN.findall(text))):
        rules += f'[style*="{part}: {colour}"]{{{part}:{dark_colour(colour)}!important}}'
    style = f"<style>@media screen and (prefers-color-scheme:dark){{{rules}}}</style>"
    return re.sub(r"<svg\b[^>]*[^/]>", lambda opening: opening[0] + style, text, count=1).encode()


def _channels(colour: str) -> tuple[int, int, int]:
    red, green, blue = bytes.fromhex(colour.removeprefix("#"))
    return red, green, blue
