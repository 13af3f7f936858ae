"""The LaTeX table in a document, where there is a pdflatex."""

import shutil
import subprocess

import pytest
from fabricated import LR, NASTY, confirmation, curve, trial

from fltune.report.export import as_latex

DOCUMENT = r"""\documentclass{article}
\usepackage[utf8]{inputenc}
\usepackage[T1]{fontenc}
\usepackage{booktabs}
\usepackage[landscape]{geometry}
\begin{document}
\noindent\footnotesize
%s
\end{document}
"""


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="pdflatex is not installed")
@pytest.mark.parametrize("name", ["two_methods", "in_pieces", "one_seed", "wild"])
def test_the_table_compiles(request, tmp_path, name):
    source = DOCUMENT % as_latex(request.getfixturevalue(name))
    (tmp_path / "table.tex").write_text(source, encoding="utf-8")
    argv = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "table.tex"]
    done = subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, errors="replace")
    assert done.returncode == 0, done.stdout[-2000:]
    assert (tmp_path / "table.pdf").read_bytes().startswith(b"%PDF")
    assert "Missing character" not in done.stdout


def test_every_row_has_as_many_cells_as_there_are_columns(make_report):
    methods = {
        f"{name} @ {cell}": {"space": LR, "scenario": {"method": name, "alpha": cell}}
        for cell in ("mild & calm", "harsh_1")
        for name in ("A", NASTY)
    }
    values = {"server.lr": 1.0, "client.lr": 0.1}
    records = [trial(name, 0, values, 0.5) for name in methods]
    records += [
        confirmation(name, 0, s, values, 0.5 + s / 100, curve(0.5))
        for name in methods
        for s in (1, 2, 3)
    ]
    lines = as_latex(make_report(methods, records)).splitlines()
    assert lines[1] == "% unfinished: A @ mild & calm: 2 of 3 trials still to come"
    (begin,) = [line for line in lines if line.startswith(r"\begin{tabular}{")]
    columns = len(begin.partition("}{")[2].strip("}"))
    rows = [line for line in lines if line.endswith(r"\\") and "multicolumn" not in line]
    assert len(rows) == 5
    assert all(len(row.replace(r"\&", "").split("&")) == columns for row in rows)
    assert [line for line in lines if "multicolumn" in line] == [
        rf"\multicolumn{{{columns}}}{{l}}{{\emph{{alpha mild \& calm}}}} \\",
        rf"\multicolumn{{{columns}}}{{l}}{{\emph{{alpha harsh\_1}}}} \\",
    ]
