"""The search: Ray Tune runs trials, Optuna proposes values, fresh seeds confirm the winners."""
