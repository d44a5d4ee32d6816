"""What the benchmarks write: files that appear whole, marked regions of Markdown files, and line charts as SVG. Standard library only.

Puts the numbers of `hinge bench attention --json` into the region "attention" of a Markdown file:

    python bench/report.py attention out/bench/attention.json docs/benchmarks.md
"""

import argparse
import json
import math
import os
import sys
import tempfile
from html import escape
from pathlib import Path


def write_atomically(path: str | Path, text: str) -> None:
    """Writes beside the file, flushes to the disk, then renames: readers see the old file or the new one."""
    path = Path(path)
    with tempfile.NamedTemporaryFile("w", dir=path.parent, prefix=path.name + ".", delete=False) as file:
        try:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
            mask = os.umask(0)
            os.umask(mask)
            os.chmod(file.name, 0o666 & ~mask)
            os.rename(file.name, path)
        except BaseException:
            os.unlink(file.name)
            raise


def require_writable(path: str | Path, region: str = "") -> None:
    """Fails before a long measurement instead of after it. `region`: what write_markdown will replace."""
    folder = Path(path).parent
    if not folder.is_dir() or not os.access(folder, os.W_OK):
        sys.exit(f"cannot write '{path}': '{folder}' is not a folder that can be written")
    if Path(path).is_dir():
        sys.exit(f"cannot write '{path}': it is a folder; give a file name")
    if region and Path(path).exists():
        around(Path(path), region)


def around(path: Path, region: str) -> tuple[str, str]:
    """What stands before and after the text of `region`, with its marks."""
    begin, end = f"<!-- begin: {region} -->", f"<!-- end: {region} -->"
    text = path.read_text()
    if begin not in text or end not in text or text.index(begin) > text.index(end):
        sys.exit(f"'{path}' lacks the marks {begin} and {end}: put them where the text is to stand")
    return text[: text.index(begin) + len(begin)], text[text.index(end) :]


def write_markdown(path: str | Path, region: str, text: str) -> None:
    """Replaces what stands between the marks of `region`. A file that is not there yet is made of the text alone."""
    if Path(path).exists():
        before, after = around(Path(path), region)
        text = f"{before}\n{text.strip()}\n{after}"
    write_atomically(path, text.rstrip() + "\n")


def simd_name(target: str) -> str:
    """Highway's name of a target as processors' vendors have it."""
    return {"AVX3": "AVX-512"}.get(target, target)


def region(name: str, cpu: str, simd: str) -> str:
    """The marks of a benchmark's table in docs/benchmarks.md: each vendor's processors have one for each SIMD level."""
    vendor = next((vendor for vendor in ("AMD", "Intel") if vendor in cpu), "other")
    return f"{name} {vendor} {simd}"


def markdown_table(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] + ["---:"] * (len(head) - 1), *rows]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)


# Okabe and Ito's palette for colour-blind readers, its yellow darkened for a white page.
PALETTE = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#A89A00", "#555555"]


def _ticks(high: float) -> list[float]:
    rough = high / 5
    power = 10 ** math.floor(math.log10(rough))
    step = next(f * power for f in (1, 2, 2.5, 5, 10) if f * power >= rough * 0.999999)
    return [i * step for i in range(math.ceil(high / step - 1e-9) + 1)]


def line_chart(title: str, subtitle: str, y_label: str, panels: list[tuple[str, str, dict[str, dict[int, float]]]]) -> str:
    """SVG text: panels side by side, each (title, x label, {series: {x: y}}), x on a logarithmic axis with a tick at every point, one
    y axis and one legend for all. The first two series are drawn thicker than the others."""
    names = list(dict.fromkeys(name for _, _, series in panels for name in series))
    highest = max((y for _, _, series in panels for points in series.values() for y in points.values()), default=1.0)
    ticks = _ticks(highest * 1.03)
    left, top, width, height, gap = 62, 136, 430, 330, 34
    total_width, total_height = left + len(panels) * (width + gap) + 4, top + height + 62
    style = "'DejaVu Sans', 'Segoe UI', Helvetica, Arial, sans-serif"
    svg = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{total_width}" height="{total_height}" '
        f'viewBox="0 0 {total_width} {total_height}" role="img" font-family="{style}">',
        f'<title>{escape(title)}</title><rect width="100%" height="100%" fill="#FFFFFF"/>',
    ]

    def text(x, y, content, size=13, anchor="start", fill="#333333", more=""):
        svg.append(
            f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}" fill="{fill}"{more}>{escape(str(content))}</text>'
        )

    def line(x1, y1, x2, y2, stroke, thick, more=""):
        svg.append(f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{stroke}" stroke-width="{thick}"{more}/>')

    def y_at(y):
        return top + height * (1 - y / ticks[-1])

    text(18, 34, title, 19, fill="#111111", more=' font-weight="600"')
    text(18, 55, subtitle, fill="#666666")
    x, y = left, 82
    for number, name in enumerate(names):
        needed = 42 + 0.56 * 13 * len(name)
        if x > left and x + needed > total_width - 18:
            x, y = left, y + 21
        line(x, y - 4.5, x + 18, y - 4.5, PALETTE[number % len(PALETTE)], 3.4 if number < 2 else 2)
        text(x + 24, y, name)
        x += needed
    text(24, top + height / 2, y_label, anchor="middle", more=f' transform="rotate(-90 24 {top + height / 2})"')

    for column, (panel_title, x_label, series) in enumerate(panels):
        start = left + column * (width + gap)
        places = sorted({x for points in series.values() for x in points})
        low, high = (math.log(places[0]), math.log(places[-1])) if places else (0.0, 1.0)

        def x_at(x, start=start, low=low, high=high):
            return start + 16 + (width - 32) * ((math.log(x) - low) / (high - low) if high > low else 0.5)

        text(start, top - 10, panel_title, 14, fill="#111111")
        for tick in ticks:
            line(start, y_at(tick), start + width, y_at(tick), "#E4E4E4", 1)
            if column == 0:
                text(start - 8, y_at(tick) + 4.5, f"{tick:g}", anchor="end", fill="#555555")
        line(start, y_at(0), start + width, y_at(0), "#333333", 1.2)
        label_end = -math.inf
        for place in places:
            line(x_at(place), y_at(0), x_at(place), y_at(0) + 5, "#333333", 1.2)
            half = 0.3 * 13 * len(str(place))
            if x_at(place) - half > label_end + 4:
                text(x_at(place), y_at(0) + 20, place, anchor="middle", fill="#555555")
                label_end = x_at(place) + half
        text(start + width / 2, y_at(0) + 44, x_label, anchor="middle")
        for name, points in reversed(list(series.items())):  # the first series last, on top
            number = names.index(name)
            colour = PALETTE[number % len(PALETTE)]
            spots = [(x_at(x), y_at(y)) for x, y in sorted(points.items())]
            path = " ".join(f"{x:.1f},{y:.1f}" for x, y in spots)
            svg.append(
                f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="{3.4 if number < 2 else 2}" stroke-linejoin="round"/>'
            )
            svg += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.6" fill="{colour}" stroke="#FFFFFF"/>' for x, y in spots]
    return "\n".join(svg) + "\n</svg>\n"


def attention_markdown(report: dict) -> str:
    """The rows of `hinge bench attention --json` as tables: one for each pass and kind of input, shapes across, activations down."""
    machine, rows = report["machine"], report["results"]
    shapes = list(dict.fromkeys((r["B"], r["H"], r["L"]) for r in rows))

    def kind(r):
        parts = [r["pass"]]
        if r["causal"]:
            parts.append("causal")
        if r["dropout"]:
            parts.append(f"dropout {r['dropout']:g}")
        return ", ".join(parts)

    def place(r):  # what tells rows of one kind and shape apart
        return (kind(r), r["h"], (r["B"], r["H"], r["L"]))

    cells: dict[tuple, list[dict]] = {}
    for r in rows:
        cells.setdefault(place(r), []).append(r)
    several_inputs = any(len(found) > 1 for found in cells.values())

    def cell(r):
        text = f"{r['gflops']:.0f} · {r['percent_of_peak']:.0f}% · {r['best_percent_of_peak']:.0f}%"
        if several_inputs and r["zeros"] > 0:
            text += f" ({r['zeros']:.0%} zeros, {r['zero_groups']:.0%} of groups)"
        return text

    text = [
        f"{machine['cpu']}, {simd_name(machine['simd'])}, {machine['threads']} threads, float32, D {rows[0]['D']}: FMA peak "
        f"{machine['fma_peak_gflops']:.0f} GFLOP/s, sgemm of oneDNN {machine['sgemm_gflops']:.0f}. Each cell: GFLOP/s (median) · "
        "share of the FMA peak · that of the fastest sample."
    ]
    for name in dict.fromkeys(kind(r) for r in rows):
        lines = [
            [h, *("<br>".join(cell(r) for r in cells.get((name, h, shape), [])) or "-" for shape in shapes)]
            for h in dict.fromkeys(r["h"] for r in rows if kind(r) == name)
        ]
        text.append(f"\n**{name}**\n\n" + markdown_table(["h", *(f"{b}x{h}x{length}" for b, h, length in shapes)], lines))
    return "\n".join(text)


def main() -> None:
    parser = argparse.ArgumentParser(description="Put the numbers of a hinge benchmark into a Markdown file.", allow_abbrev=False)
    parser.add_argument("region", choices=["attention"], help="which benchmark")
    parser.add_argument("json", help="what `hinge bench REGION --json` wrote")
    parser.add_argument("markdown", help="file with the marks <!-- begin: REGION VENDOR SIMD --> and <!-- end: REGION VENDOR SIMD -->, such as AMD AVX2")
    arguments = parser.parse_args()
    require_writable(arguments.markdown)
    try:
        report = json.loads(Path(arguments.json).read_text())
    except (OSError, ValueError) as error:
        sys.exit(f"cannot read '{arguments.json}': {error}")
    if not isinstance(report, dict) or not report.get("results") or "machine" not in report:
        sys.exit(f"'{arguments.json}' is not what `hinge bench {arguments.region} --json` writes: no machine or no results in it")
    machine = report["machine"]
    write_markdown(arguments.markdown, region(arguments.region, machine["cpu"], simd_name(machine["simd"])), attention_markdown(report))


if __name__ == "__main__":
    main()
