"""What is to be read can be read: on the page, in figures, in light and in dark."""

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest
from harness.analysis.tradeoff.curves import STYLES
from harness.reporting.figures.blocks import COLOURS
from harness.reporting.figures.colours import (
    BLACK,
    DARK_INK,
    DARK_PAGE,
    LEGIBLE,
    WHITE,
    contrast,
    dark_colour,
    text_colour,
    with_dark_colours,
)
from harness.reporting.figures.tradeoff import tradeoff
from matplotlib.colors import to_hex
from matplotlib.text import Text

import harness.reporting
from harness.reporting.figures.style import INK, RED, REFERENCE_STYLES, SOFT, rendered

TEMPLATES = Path(harness.reporting.__file__).parent / "templates"
PALETTE = [*(colour for colour, _ in STYLES), INK, SOFT, RED, *(style[2] for style in REFERENCE_STYLES.values())]


def test_contrast_is_that_of_the_standard():
    assert contrast(WHITE, BLACK) == contrast(BLACK, WHITE) == pytest.approx(21)
    assert contrast(RED, RED) == 1
    assert contrast("#ff0000", WHITE) == pytest.approx(1.05 / (0.2126 + 0.05))
    assert contrast("#e69f00", WHITE) < 2.3, "CD's colour, which no text may have as it is"


@pytest.mark.parametrize("colour", PALETTE)
@pytest.mark.parametrize("ground", [WHITE, DARK_PAGE])
def test_a_text_of_any_colour_of_the_figures_is_legible(colour, ground):
    written = text_colour(colour, ground)
    assert contrast(written, ground) >= LEGIBLE
    assert (written == colour.lower()) is (contrast(colour, ground) >= LEGIBLE), "changed only where it must be"


@pytest.mark.parametrize("colour", PALETTE)
def test_on_a_dark_page_every_colour_is_legible(colour):
    shown = dark_colour(colour)
    channels = [int(colour[at : at + 2], 16) for at in (1, 3, 5)]
    assert contrast(shown, DARK_PAGE) >= (LEGIBLE if max(channels) - min(channels) > 24 else 3)


def test_every_text_of_the_page_is_legible_on_every_ground():
    text = (TEMPLATES / "report.css").read_text()
    schemes = [
        dict(re.findall(r"--([a-z-]+): (#[0-9a-f]{6})", block)) for block in re.findall(r":root \{(.*?)\}", text, re.S)
    ]
    assert len(schemes) == 2
    for scheme in schemes:
        inks = [scheme[name] for name in ("ink", "soft", "red-ink", "accent")]
        grounds = [scheme[name] for name in ("page", "card", "head", "red", "warn") if name in scheme]
        for ink in inks:
            assert min(contrast(ink, ground) for ground in grounds) >= LEGIBLE, ink
    assert (schemes[1]["page"], schemes[1]["ink"]) == (DARK_PAGE, DARK_INK), "figures have the page's own"


def test_a_number_on_a_cell_of_the_heat_map_is_legible():
    for share in range(101):
        cell = to_hex(COLOURS(share / 100))
        assert max(contrast(WHITE, cell), contrast(BLACK, cell)) >= LEGIBLE


@pytest.fixture(scope="module")
def figure(make_row, make_plan, make_point, make_measurement, make_ranked):
    """The trade-off of as many variants as there are colours, one of them collapsed."""
    specs = [make_row("original"), *(make_row(f"v{at}", (1, 2), evaluators={"all": "k"}) for at in range(len(STYLES)))]
    kept = {}
    for place, spec in enumerate(specs):
        numbers = {"ma": 1 - place / 10, "el_3": 0.5, "perplexity": 20.0 + 50 * place, "mauve": 0.9 - place / 10}
        kept[spec.trial_id] = [
            make_measurement(spec, at, "all", numbers=numbers | {"ma": numbers["ma"] - (at or 0) / 20})
            for at in spec.points()
        ]
    _, ranked = make_ranked(make_plan(*specs), kept)
    return tradeoff(ranked.table, ranked.info)


def test_every_text_of_the_static_figure_is_legible(figure):
    texts = [text for text in figure.findobj(Text) if text.get_text().strip()]
    assert len({to_hex(text.get_color()) for text in texts}) > len(STYLES) / 2, "labels have their curve's colour"
    for text in texts:
        assert contrast(to_hex(text.get_color()), WHITE) >= LEGIBLE, text.get_text()


def test_the_figure_for_a_dark_page_has_a_dark_colour_for_each_of_its_own(figure):
    light = rendered(figure, "svg")
    dark = with_dark_colours(light)
    [style] = re.findall(r"<style>(@media screen and \(prefers-color-scheme:dark\).*?)</style>", dark.decode())
    assert dark.decode().replace(f"<style>{style}</style>", "") == light.decode(), "in the light nothing differs"
    ElementTree.fromstring(dark)
    ruled = re.findall(r'\[style\*="(\w+): (#\w+)"\]\{\1:(#\w+)!important\}', style)
    drawn = set(re.findall(r"\b(fill|stroke): (#[0-9a-f]{6})\b", light.decode()))
    assert {(part, colour) for part, colour, _ in ruled} == drawn
    assert ("fill", WHITE, DARK_PAGE) in ruled
    assert all(shown == dark_colour(colour) for _, colour, shown in ruled)
