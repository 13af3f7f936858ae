"""The papers' experiments, run and judged: what each claims, what came out here, what they print.

An experiment is a search file whose ``claims`` say what a paper's figure or table shows, as a
statistic of the confirmed runs and a threshold. Nothing about the outcome is typed in: a claim is
shown, not shown or opposite by the interval of its statistic over the seeds.
"""
