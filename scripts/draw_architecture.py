"""Draws `docs/pictures/architecture.svg`: the way of a model and of the data through the rooms.

The picture is code so that it can follow the code: move a box here and run `make docs`.
With `--check` nothing is written; the exit code says whether the picture is up to date.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

PICTURE = Path(__file__).resolve().parents[1] / "docs" / "pictures" / "architecture.svg"
WIDTH, HEIGHT = 1000, 632

CORE = ("#eaf2fb", "#2f6db0")
PLUGIN = ("#fdf1e3", "#c07432")
DATA = ("#ffffff", "#5a6472")


@dataclass(frozen=True)
class Box:
    """A rectangle with a bold title and smaller lines below it, in pixels."""

    left: int
    top: int
    width: int
    height: int
    title: str
    lines: tuple[str, ...]
    colours: tuple[str, str]

    @property
    def right(self) -> int:
        """The x of the right edge."""
        return self.left + self.width

    @property
    def bottom(self) -> int:
        """The y of the lower edge."""
        return self.top + self.height

    @property
    def middle(self) -> tuple[int, int]:
        """The centre."""
        return self.left + self.width // 2, self.top + self.height // 2

    def svg(self) -> str:
        """Draw it."""
        fill, line = self.colours
        across, _ = self.middle
        first = self.top + self.height // 2 + 5 - 9 * len(self.lines)
        parts = [
            f'<rect x="{self.left}" y="{self.top}" width="{self.width}" height="{self.height}" '
            f'rx="8" fill="{fill}" stroke="{line}" stroke-width="1.5"/>',
            f'<text x="{across}" y="{first}" class="title">{self.title}</text>',
        ]
        for row, text in enumerate(self.lines, start=1):
            parts.append(f'<text x="{across}" y="{first + 18 * row}" class="small">{text}</text>')
        return "\n".join(parts)


def arrow(*points: tuple[int, int], label: str = "", at: tuple[int, int] = (0, 0)) -> str:
    """A line through the points with a head at its end, and a word beside it."""
    path = "M" + " L".join(f"{x} {y}" for x, y in points)
    drawn = f'<path d="{path}" class="arrow"/>'
    if label:
        drawn += f'\n<text x="{at[0]}" y="{at[1]}" class="label">{label}</text>'
    return drawn


def frame(left: int, top: int, width: int, height: int, text: str, colour: str) -> str:
    """A dashed frame around a group, with its name in the upper left corner."""
    return (
        f'<rect x="{left}" y="{top}" width="{width}" height="{height}" rx="12" fill="none" '
        f'stroke="{colour}" stroke-dasharray="6 5"/>\n'
        f'<text x="{left + 14}" y="{top + 22}" class="frame" fill="{colour}">{text}</text>'
    )


STYLE = """<style>
text { font-family: Helvetica, Arial, sans-serif; fill: #1f2733; }
.title { font-size: 13.5px; font-weight: bold; text-anchor: middle; }
.small { font-size: 12px; text-anchor: middle; }
.label { font-size: 12.5px; font-style: italic; text-anchor: middle; fill: #3d4856; }
.frame { font-size: 13.5px; font-weight: bold; }
.arrow { fill: none; stroke: #3d4856; stroke-width: 1.6; marker-end: url(#head); }
</style>
<defs><marker id="head" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="8" markerHeight="8"
 orient="auto-start-reverse"><path d="M0 0 L10 5 L0 10 z" fill="#3d4856"/></marker></defs>"""


def picture() -> str:
    """Return the whole drawing as SVG text."""
    model = Box(24, 62, 104, 80, "model", ("path, bytes", "or proto"), DATA)
    load = Box(168, 62, 150, 80, "load", ("parse, guard limits,", "infer types"), CORE)
    passes = Box(358, 62, 150, 80, "passes", ("fold, clean, fuse,", "by level"), CORE)
    place = Box(548, 62, 150, 80, "partition", ("who runs which node,", "and why"), CORE)
    plan = Box(738, 62, 150, 80, "compiler, planner", ("partitions become", "a flat plan"), CORE)
    report = Box(548, 182, 150, 54, "placement report", ("get_placement()",), DATA)

    registry = Box(168, 326, 150, 80, "registry", ("reads entry points", "one by one"), CORE)
    factory = Box(358, 326, 150, 80, "ProviderFactory", ("devices(),", "why_unavailable()"), PLUGIN)
    provider = Box(
        548, 326, 150, 80, "ExecutionProvider", ("get_capability(),", "compile()"), PLUGIN
    )
    compiled = Box(
        738, 326, 150, 80, "CompiledPartition", ("run(inputs, outputs,", "stream)"), PLUGIN
    )

    feeds = Box(24, 522, 104, 80, "feeds", ("numpy arrays", "by name"), DATA)
    check = Box(168, 522, 150, 80, "signature", ("name, dtype, rank,", "fixed lengths"), CORE)
    execute = Box(
        358,
        522,
        340,
        80,
        "executor",
        ("one loop over Copy, Run, Wait, Release;", "If, Loop and Scan have plans of their own"),
        CORE,
    )
    outputs = Box(738, 522, 150, 80, "outputs", ("numpy arrays,", "the caller's own"), DATA)

    boxes = [model, load, passes, place, plan, report, registry, factory, provider, compiled]
    boxes += [feeds, check, execute, outputs]
    row1, row2, row3 = model.middle[1], registry.middle[1], feeds.middle[1]
    gutter = (plan.right + 52, row1)
    arrows = [
        *(
            arrow((a.right, row1), (b.left, row1))
            for a, b in ((model, load), (load, passes), (passes, place), (place, plan))
        ),
        arrow((place.middle[0], place.bottom), (place.middle[0], report.top)),
        arrow((registry.right, row2), (factory.left, row2)),
        arrow((factory.right, row2), (provider.left, row2)),
        arrow((provider.right, row2), (compiled.left, row2)),
        arrow(
            (596, provider.top),
            (596, 274),
            (528, 274),
            (528, 128),
            (place.left, 128),
            label="claims, with reasons",
            at=(452, 268),
        ),
        arrow(
            (plan.left + 40, plan.bottom),
            (plan.left + 40, 274),
            (670, 274),
            (670, provider.top),
            label="subgraphs",
            at=(724, 268),
        ),
        arrow((feeds.right, row3), (check.left, row3)),
        arrow((check.right, row3), (execute.left, row3)),
        arrow((execute.right, row3), (outputs.left, row3)),
        arrow(
            (plan.right, row1),
            gutter,
            (gutter[0], 466),
            (640, 466),
            (640, execute.top),
            label="the plan",
            at=(gutter[0] - 36, 460),
        ),
        arrow(
            (460, execute.top),
            (460, 438),
            (compiled.middle[0], 438),
            (compiled.middle[0], compiled.bottom),
            label="one call per partition",
            at=(560, 432),
        ),
    ]
    frames = [
        frame(10, 20, 980, 228, "Once: a session is made", CORE[1]),
        frame(340, 290, 566, 130, "In a plugin's own distribution", PLUGIN[1]),
        frame(10, 480, 980, 140, "Every run, top to bottom and no way back up", CORE[1]),
    ]
    body = "\n".join([STYLE, *frames, *(box.svg() for box in boxes), *arrows])
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
        f'width="{WIDTH}" height="{HEIGHT}" role="img" '
        f'aria-label="The way of a model and of its data through ep-core">\n'
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>\n{body}\n</svg>\n'
    )


def main() -> int:
    """Write the picture, or compare with what is there."""
    drawn = picture()
    if "--check" in sys.argv[1:]:
        same = PICTURE.exists() and PICTURE.read_text(encoding="utf-8") == drawn
        if not same:
            sys.stderr.write(f"{PICTURE.name} is out of date; run make docs\n")
        return 0 if same else 1
    PICTURE.parent.mkdir(exist_ok=True)
    PICTURE.write_text(drawn, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
