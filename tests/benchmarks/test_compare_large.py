"""The benchmark of the comparison writes a search that is compared like any other."""

from fltune.report.page import as_html
from fltune.search.search import compare


def test_the_search_it_writes_is_whole(load_program, tmp_path):
    runs = load_program("compare_large").write_search(tmp_path, 36, 5)
    report = compare("large", [f"tracking.root={tmp_path}"])
    assert runs == 36 + 3 * 3
    assert [row.summary.trials for row in report.rows] == [12, 12, 12]
    assert all(row.summary.test.seeds == 3 and not row.missing for row in report.rows)
    assert all(len(run.rows) == 5 for run in report.lanes["FedGM"].reported)
    assert any(row.summary.diverged for row in report.rows)
    assert "is best of 3" in as_html(report)
