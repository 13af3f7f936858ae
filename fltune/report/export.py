r"""A comparison as a CSV or LaTeX file.

The CSV file has a row per method and reference. The columns are always these, empty where something
is not known:

    scenario           the cell, such as "alpha harsh"; empty without scenarios
    rank               in its scenario, by the test mean; of losses, first by the seeds left out
    method             the method's own name
    kind               method, or reference: a row beside the methods, without rank and test
    best               the winner's values, a JSON object of dotted names; a reference's values
    winner             the number of its trial, as in `explain NAME/METHOD#NUMBER`
    val                the winner's score in the search, on validation data
    test_metric        test/accuracy, or test/loss
    test_mean, test_std, test_low, test_high, seeds
                       over the confirmation seeds; low and high bound the 95% interval of the mean
    seeds_diverged, seeds_failed
                       confirmation runs that ended so: a diverged one is an accuracy of 0, and left
                       out of a loss; a failed one is left out of both
    difference, difference_low, difference_high, p
                       to the best method, paired by seed; p with Holm's correction. A difference
                       that is the same on every seed has no bounds and no p
    rounds_to_target, reached
                       the mean first round over the seeds that reached it, and how many did
    uplink_bits, downlink_bits
                       of one confirmed run, mean over those that are complete; empty if none is
    client_samples     that the trials processed, confirmation apart; of one run of a reference
    trials, pruned, diverged, failed
                       configs, and how many of them ended so
    edges              winning values on a border of the space: "server.lr highest; ..."
    optimism           how much better the score was in the search than on fresh seeds
    missing            what an interrupted search still lacks

The LaTeX file is a ``tabular`` for the booktabs package. A dagger marks what diverged or failed on
fresh seeds; its last lines say on how many. Comments above it say what an interrupted search lacks.
"""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fltune.errors import ConfigError
from fltune.plain import finite
from fltune.report.compare import Report, Row, bits_text
from fltune.report.references import Reference
from fltune.report.summary import Interval
from fltune.report.table import short

COLUMNS = (
    "scenario",
    "rank",
    "method",
    "kind",
    "best",
    "winner",
    "val",
    "test_metric",
    "test_mean",
    "test_std",
    "test_low",
    "test_high",
    "seeds",
    "seeds_diverged",
    "seeds_failed",
    "difference",
    "difference_low",
    "difference_high",
    "p",
    "rounds_to_target",
    "reached",
    "uplink_bits",
    "downlink_bits",
    "client_samples",
    "trials",
    "pruned",
    "diverged",
    "failed",
    "edges",
    "optimism",
    "missing",
)

COUNTS = (
    *("winner", "client_samples", "trials", "pruned", "diverged", "failed", "optimism"),
    *("seeds_diverged", "seeds_failed"),
)
"""Columns that are attributes of a summary."""
DAGGER = r"^{\dagger}"

LATEX = {
    "\\": r"\textbackslash{}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "|": r"\textbar{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "\n": " ",
}


def as_csv(report: Report) -> str:
    """Return the CSV file."""
    out = io.StringIO()
    writer = csv.DictWriter(out, COLUMNS, lineterminator="\n")
    writer.writeheader()
    for row in report.rows:
        writer.writerow({k: _cell(v) for k, v in _record(row, report.headline).items()})
    for reference in report.references:
        own = _reference(reference, report.headline)
        writer.writerow({k: _cell(v) for k, v in own.items()})
    return out.getvalue()


def _spread(test: Interval) -> dict[str, Any]:
    spread = {f"test_{k}": getattr(test, k) for k in ("mean", "std", "low", "high")}
    return {**spread, "seeds": test.seeds}


def _reference(reference: Reference, headline: str) -> dict[str, Any]:
    return {
        "kind": "reference",
        "scenario": reference.scenario,
        "method": reference.name,
        "best": json.dumps(finite(reference.values), ensure_ascii=False),
        "test_metric": headline,
        **(_spread(reference.test) if reference.test is not None else {}),
        "client_samples": reference.client_samples,
    }


def _record(row: Row, headline: str) -> dict[str, Any]:
    m, test = row.summary, row.summary.test
    record: dict[str, Any] = {
        "kind": "method",
        "scenario": row.scenario,
        "rank": row.rank,
        "method": row.title,
        "best": json.dumps(finite(m.best), ensure_ascii=False),
        "val": m.val,
        "test_metric": headline if test is not None else None,
    }
    if test is not None:
        record |= _spread(test)
        record |= {"uplink_bits": m.bits_up, "downlink_bits": m.bits_down}
    if m.against_best is not None:
        d = m.against_best.difference
        record |= {"difference": d.mean, "difference_low": d.low, "difference_high": d.high}
        record["p"] = m.against_best.p
    if row.reach is not None:
        record |= {"rounds_to_target": row.reach.rounds, "reached": row.reach.reached}
    record |= {key: getattr(m, key) for key in COUNTS}
    record["edges"] = "; ".join(f"{key} {side}" for key, side in m.edges.items())
    return {**record, "missing": row.missing}


def _cell(value: Any) -> Any:
    """Return a value as a file keeps it: nothing for what is no number."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


def as_latex(report: Report) -> str:
    """Return the LaTeX table: best values, scores, difference to the best; the best in bold."""
    heads = ["method", "best values", report.summary.metric, report.headline.replace("/", " ")]
    heads += ["difference ($p$)", "uplink"]
    if report.goal is not None:
        heads.append("rounds to target")
    columns = "ll" + "r" * (len(heads) - 2)
    lacking = [" ".join(f"{row.name}: {row.missing}".split()) for row in report.rows if row.missing]
    named = [h if "$" in h else escape_latex(h) for h in heads]
    lines = [
        "% needs \\usepackage{booktabs}; mean and half the 95% interval over fresh seeds",
        *(f"% unfinished: {text}" for text in lacking),
        f"\\begin{{tabular}}{{{columns}}}",
        "\\toprule",
        f"{' & '.join(named)} \\\\",
    ]
    for scenario, rows in report.cells.items():
        lines.append("\\midrule")
        if scenario:
            title = f"\\emph{{{escape_latex(scenario)}}}"
            lines += [f"\\multicolumn{{{len(heads)}}}{{l}}{{{title}}} \\\\"]
        lines += [_latex_line(_latex_cells(row)) for row in rows]
        beside = [r for r in report.references if r.scenario == scenario]
        if beside:
            lines.append("\\midrule")
        for reference in beside:
            cells = _latex_reference(reference)
            cells += ["--"] * (len(heads) - len(cells))
            lines.append(_latex_line(cells))
    notes = [f"\\multicolumn{{{len(heads)}}}{{l}}{{{note}}} \\\\" for note in _latex_notes(report)]
    return "\n".join([*lines, "\\bottomrule", *notes, "\\end{tabular}", ""])


def _latex_notes(report: Report) -> list[str]:
    """Return what a dagger stands for, a line for each method that has one."""
    notes = []
    for row in report.rows:
        m = row.summary
        counted = "left out" if m.lost_seeds or not m.seeds_diverged else "diverged: accuracy 0"
        text = f"{row.name}: {m.broken_off} of its fresh seeds ({counted})"
        notes += [f"${DAGGER}$ {escape_latex(text)}"] if m.broken_off else []
    return notes


def _latex_line(cells: Sequence[str]) -> str:
    """Return a row; what follows the end of the row before it must not look like its argument."""
    text = " & ".join(cells)
    return f"{'{}' if text.startswith(('[', '*')) else ''}{text} \\\\"


def _latex_cells(row: Row) -> list[str]:
    m = row.summary
    best = ", ".join(f"{key}={short(value)}" for key, value in m.shown.items())
    name = escape_latex(row.title)
    cells = [
        f"\\textbf{{{name}}}" if row.wins else name,
        escape_latex(best) if best else "--",
        "--" if m.val is None else f"${m.val:.4f}$",
        _latex_interval(m.test, DAGGER if m.broken_off else ""),
        _latex_difference(row),
        bits_text(m.bits_up) if m.test is not None else "--",
    ]
    if row.reach is not None:
        cells.append(escape_latex(str(row.reach)) if row.reach.seeds else "--")
    return cells


def _latex_reference(reference: Reference) -> list[str]:
    name = f"\\emph{{{escape_latex(reference.name)}}}"
    values = ", ".join(f"{key}={short(value)}" for key, value in reference.values.items())
    return [name, escape_latex(values) or "--", "--", _latex_interval(reference.test)]


def _latex_interval(test: Interval | None, mark: str = "") -> str:
    if test is None:
        return f"--${mark}$" if mark else "--"
    half = "" if test.seeds == 1 else f" \\pm {test.high - test.mean:.4f}"
    return f"${test.mean:.4f}{half}{mark}$"


def _latex_difference(row: Row) -> str:
    against = row.summary.against_best
    if against is None:
        return "--"
    equal = " (no $p$: all equal)" if against.all_equal else ""
    shown = "< 0.001" if against.p < 1e-3 else f"= {against.p:.3f}"
    p = "" if math.isnan(against.p) else f"\\ (p {shown})"
    mark = DAGGER if row.summary.lost_seeds else ""  # the lost seeds are no part of it either
    return f"${against.difference.mean:+.4f}{mark}{p}${equal}"


def escape_latex(text: str) -> str:
    """Return text that LaTeX prints as it is."""
    return "".join(LATEX.get(letter, letter) for letter in text)


def _page(report: Report) -> str:
    from fltune.report.page import as_html  # plotly takes a second to import

    return as_html(report)


def write_files(
    report: Report, html: Path | None = None, csv: Path | None = None, latex: Path | None = None
) -> list[Path]:
    """Write the files that are wanted; return their paths.

    Args:
        report: the comparison.
        html: where the page goes.
        csv: where the CSV file goes.
        latex: where the LaTeX table goes.

    Raises:
        ConfigError: one cannot be written.
    """
    wanted = (("--html", html, _page), ("--csv", csv, as_csv), ("--latex", latex, as_latex))
    written = []
    for option, path, make in wanted:
        if path is None:
            continue
        try:
            path.write_text(make(report), encoding="utf-8")
        except OSError as error:
            text = f"{option}: {path} cannot be written: {error.strerror}"
            raise ConfigError(text) from error
        written.append(path)
    return written
