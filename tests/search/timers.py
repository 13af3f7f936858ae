"""What stands in for the processes in which a plan times rounds."""

from fltune.search.probe import Probe
from fltune.search.timing import Memory, Timings

OF_A_RUN = Probe(setup=1.0, round=0.25, evaluation=0.5, test=2.0)


def constant(questions, processes, cpus):
    """Every run takes the same."""
    return Timings([OF_A_RUN] * len(questions), Memory(own=2**28, shared=2**27), imports=4.0)


def here(questions, processes, cpus):
    """Really run the rounds, one after the other, in this process."""
    return Timings([q.answer() for q in questions], Memory(own=2**28, shared=2**27), imports=4.0)
