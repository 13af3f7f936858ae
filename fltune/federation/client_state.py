"""Per-client vectors: a row is made when its client first takes part.

Ten thousand clients of which a hundred have been seen cost a hundred rows. A round gathers the rows
of its cohort and scatters them back; rows of other clients are never touched.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


class ClientState:
    """Named rows, one per client that has taken part.

    Args:
        template: the state of a client never seen, by name: [d] vectors or scalars [].
        num_clients: N.
        device: where rows are kept; the host for populations that do not fit on an accelerator.
    """

    def __init__(
        self, template: dict[str, Tensor], num_clients: int, device: torch.device | str = "cpu"
    ) -> None:
        self.template = template
        self.device = torch.device(device)
        self._row = torch.full((num_clients,), -1, dtype=torch.int64)
        self._seen = 0
        self._store = {k: v.new_empty((0, *v.shape), device=device) for k, v in template.items()}

    @property
    def seen(self) -> int:
        """How many clients have a row."""
        return self._seen

    def gather(self, clients: Tensor) -> dict[str, Tensor]:
        """Return copies of the rows of some clients, [C, ...] on the template's device."""
        row = self._row[clients.cpu()]
        known = (row >= 0).nonzero().squeeze(1)
        rows = {}
        for name, start in self.template.items():
            value = start.expand(len(row), *start.shape).clone()
            stored = self._store[name][row[known].to(self.device)]
            value[known.to(value.device)] = stored.to(value.device)
            rows[name] = value
        return rows

    def scatter(self, clients: Tensor, rows: dict[str, Tensor]) -> None:
        """Write the rows of some clients; new clients get a row of their own.

        Raises:
            ValueError: a client twice, whose two new states would contradict each other.
        """
        if not self.template:
            return
        clients = clients.cpu()
        if len(clients.unique()) < len(clients):
            raise ValueError(
                f"clients {clients.tolist()} of one round: a client that takes part twice has two "
                "new states; methods with client state need distinct clients (repeats: false)"
            )
        new = clients[self._row[clients] < 0]
        self._row[new] = torch.arange(self._seen, self._seen + len(new))
        self._seen += len(new)
        self._grow()
        place = self._row[clients].to(self.device)
        for name, store in self._store.items():
            store[place] = rows[name].to(store)

    def _grow(self) -> None:
        """Make room by doubling, so that growing costs O(1) per row."""
        for name, store in self._store.items():
            if len(store) < self._seen:
                room = min(max(self._seen, 2 * len(store)), len(self._row))
                larger = store.new_empty((room, *store.shape[1:]))
                larger[: len(store)] = store
                self._store[name] = larger

    def state_dict(self) -> dict[str, Any]:
        """Return the rows in use and the template, for a checkpoint.

        The template depends on the initial model, which a resumed run does not have any more.
        """
        rows = {name: store[: self._seen].clone() for name, store in self._store.items()}
        template = {name: start.clone() for name, start in self.template.items()}
        return {"row": self._row.clone(), "seen": self._seen, "rows": rows, "template": template}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take the rows of a checkpoint.

        Raises:
            ValueError: the checkpoint was made for other state or another number of clients.
        """
        if set(state["rows"]) != set(self.template) or len(state["row"]) != len(self._row):
            raise ValueError(
                f"the checkpoint holds {sorted(state['rows'])} of {len(state['row'])} clients; "
                f"this run keeps {sorted(self.template)} of {len(self._row)}"
            )
        self.template = {k: state["template"][k].to(v) for k, v in self.template.items()}
        self._row = state["row"].clone()
        self._seen = state["seen"]
        self._store = {k: v.to(self.device).clone() for k, v in state["rows"].items()}
