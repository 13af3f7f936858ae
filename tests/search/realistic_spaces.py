"""Search spaces as a researcher would write them, for the tests of this folder."""

from fltune import dotted
from fltune.search.config import SearchConfig

BASE = """
experiment:
  data: {name: digits, clients: 20, partition: {kind: dirichlet, alpha: 0.5}}
  participation: {kind: uniform, per_round: 5}
  server: {name: fedgm, beta: 0.8, nu: 0.5}
  client: {lr: 0.1, steps: 2}
  rounds: 30
search: {trials: 4}
"""


def config_of(space, overrides=None, **method):
    raw = dotted.load_yaml(BASE)
    written = dotted.load_yaml(space) if isinstance(space, str) else space
    raw["methods"] = {"M": {**method, "space": written}}
    return SearchConfig.parse(raw, "my.yaml", overrides)


def method_of(space, overrides=None, **method):
    return config_of(space, overrides, **method).method("M")


CONDITIONAL = """
server.name: {choice: [fedgm, fedadam]}
server.lr: {loguniform: [0.01, 3]}
server.beta: {choice: [0.7, 0.9], when: {server.name: fedgm}}
server.nu: {uniform: [0, 1], step: 0.25, when: {server.name: fedgm}}
client.momentum: {choice: [0.0, 0.5], when: {server.nu: "> 0", server.beta: [0.7, 0.9]}}
server.tau: {loguniform: [0.001, 0.1], when: {server.name: fedadam}}
"""
TIED = """
client.lr: {grid: [0.01, 0.005, 0.001, 0.0005]}
server.lr: {tied: "0.01 / client.lr"}
client.batch_size: {paired: [8, 16, 32, 64], with: client.lr}
client.momentum: 0.5
participation.per_round: {tied: "round(data.clients / 4)"}
server.nu: {tied: "min(server.lr / 20, client.momentum)"}
"""
STAGES = """
server.stages: {choice: [2, 3, 4]}
server.lr: {loguniform: [0.5, 4]}
server.drop: {choice: [0.5, 0.25]}
server.stage_ends: {stages: free}
server.betas: {stages: {uniform: [0.5, 0.95]}}
rounds: {fixed: 40}
"""
RATES = """
server.stages: {int: [2, 4]}
server.lr: {loguniform: [0.5, 4]}
server.lrs: {stages: {drop: {choice: [0.5, 0.25]}}}
server.stage_ends: {stages: equal}
server.betas: {stages: w1}
"""
REALISTIC = {
    "conditional": (CONDITIONAL, {}),
    "tied": (TIED, {}),
    "stages": (STAGES, {"server": {"name": "multistage"}}),
    "rates": (RATES, {"server": {"name": "multistage"}}),
}
