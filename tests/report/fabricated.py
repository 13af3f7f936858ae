"""Lines of a search that was never run: what a report reads, written by hand."""

from fltune.search.record import TrialRecord

MIB = 8 * 2**20
NASTY = """Ours</script><script>alert("é")</script> & 'b'"""
"""A method's name that breaks out of HTML, of JSON in a page, of LaTeX, if it is let."""

EXPERIMENT = {
    "data": {"name": "digits", "clients": 10, "partition": "iid"},
    "model": {"name": "mlp", "hidden": [4]},
    "participation": {"kind": "uniform", "per_round": 2},
    "client": {"lr": 0.1, "steps": 1, "batch_size": 8},
    "rounds": 4,
    "eval_every": 2,
}
LR = {"server.lr": {"loguniform": [0.1, 10.0]}, "client.lr": {"loguniform": [0.01, 1.0]}}


def curve(*values, metric="val/accuracy", **more):
    """Rows of evaluations after rounds 2, 4, ..."""
    return [
        {"round": 2 * i, metric: v, "train/loss": 1 / i, "comm/up_bits": i * MIB, **more}
        for i, v in enumerate(values, start=1)
    ]


def trial(method, number, values, score=None, status="complete", **more):
    scores = [] if score is None else [score]
    rows = curve(score / 2, score) if score else []
    rest = {"scores": scores, "status": status, "rows": rows, "client_samples": 1000, **more}
    return TrialRecord(method, "trial", number, values, seed=0, **rest)


def confirmation(method, number, seed, values, test, rows, metric="test/accuracy", **more):
    rest = {
        "scores": [rows[-1].get("val/accuracy", rows[-1].get("val/loss"))],
        "status": "complete",
        "rows": rows,
        "metrics": {metric: test, **{k: v for k, v in rows[-1].items() if k.startswith("val/")}},
        "comm": {"up_bits": 2.0 * MIB, "down_bits": 4.0 * MIB},
        "participation": {"tau_max": 3, "coverage": 0.5},
        **more,
    }
    return TrialRecord(method, "confirmation", number, values, seed, **rest)
