import pytest

from fltune.report.markdown import literal, markdown_table


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("server.lr=1 client.batch_size=8", "server.lr=1 client.batch_size=8"),
        ("<b>A</b> &lt;", "&lt;b>A&lt;/b> &amp;lt;"),
        ("R&D and AT & T", "R&D and AT & T"),
        ("*FedGM*, `x`, a\\b", r"\*FedGM\*, \`x\`, a\\b"),
        ("_A_ and fed_avg", r"\_A\_ and fed_avg"),
    ],
)
def test_text_is_shown_as_it_is(text, written):
    assert literal(text) == written


def test_a_cell_stays_one_cell():
    lines = markdown_table(["a|b", "c"], [["1\n2", "x|y"]])
    assert lines == [r"| a\|b | c |", "| --- | --- |", r"| 1 2 | x\|y |"]
