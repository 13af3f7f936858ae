"""Per-client vectors: a row is made when its client first takes part.

Ten thousand clients of which a hundred have been seen cost a hundred rows. A round gathers the rows
of its cohort and scatters them back; rows of other clients are never touched.

Rows lie in blocks, each as long as all before it together: they grow without being copied. Blocks
beyond :data:`LARGE` bytes lie in files of a temporary folder (``TMPDIR``).
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

LARGE = 4 * 2**30
"""Bytes of rows that are kept in memory."""


class Block:
    """Rows first, ..., first + count - 1 of all names, in memory or in a file for each name.

    A file is mapped only while its rows are read or written: what of it stays in memory in between
    is the kernel's choice.

    Args:
        template: what a row looks like, by name.
        first, count: the rows.
        place: the device in whose memory they lie, or the folder of their files.
    """

    def __init__(
        self, template: dict[str, Tensor], first: int, count: int, place: torch.device | Path
    ) -> None:
        self.template = template
        self.first, self.count = first, count
        self.place = place
        self._values = {}
        if isinstance(place, torch.device):
            self._values = {
                k: v.new_empty((count, *v.shape), device=place) for k, v in template.items()
            }

    def rows(self, name: str) -> Tensor:
        """Return the rows of a name, [count, ...], to be read or written in place."""
        if isinstance(self.place, torch.device):
            return self._values[name]
        like = self.template[name]
        path = self.place / f"{name}-{self.first}"
        size = self.count * like.numel()
        mapped = torch.from_file(str(path), shared=True, size=size, dtype=like.dtype)
        return mapped.view(self.count, *like.shape)

    def holds(self, row: Tensor) -> Tensor:
        """Return the places in ``row`` [C] of rows that lie here."""
        return ((row >= self.first) & (row < self.first + self.count)).nonzero().squeeze(1)


class ClientState:
    """Named rows, one per client that has taken part.

    Args:
        template: the state of a client never seen, by name: [d] vectors or scalars [].
        num_clients: N.
        device: where rows are kept; the host for populations that do not fit on an accelerator.
        in_memory: bytes of rows beyond which further ones lie in files.
    """

    def __init__(
        self,
        template: dict[str, Tensor],
        num_clients: int,
        device: torch.device | str = "cpu",
        in_memory: int = LARGE,
    ) -> None:
        self.template = template
        self.device = torch.device(device)
        self.in_memory = in_memory
        self._row = torch.full((num_clients,), -1, dtype=torch.int64)
        self._seen = 0
        self._blocks: list[Block] = []
        self._folder: tempfile.TemporaryDirectory[str] | None = None

    @property
    def seen(self) -> int:
        """How many clients have a row."""
        return self._seen

    def gather(self, clients: Tensor) -> dict[str, Tensor]:
        """Return copies of the rows of some clients, [C, ...] on the template's device."""
        if not self.template:
            return {}
        row = self._row[clients.cpu()]
        found = {k: v.expand(len(row), *v.shape).clone() for k, v in self.template.items()}
        for block in self._blocks:
            here = block.holds(row)
            if len(here) == 0:
                continue
            for name, value in found.items():
                rows = block.rows(name)
                stored = rows[(row[here] - block.first).to(rows.device)]
                value[here.to(value.device)] = stored.to(value.device)
        return found

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
        self._write(self._row[clients], rows)

    def _write(self, row: Tensor, values: dict[str, Tensor]) -> None:
        for block in self._blocks:
            here = block.holds(row)
            if len(here) == 0:
                continue
            for name in self.template:
                rows, value = block.rows(name), values[name]
                place = (row[here] - block.first).to(rows.device)
                rows[place] = value[here.to(value.device)].to(rows)

    def _grow(self) -> None:
        """Make room by doubling: a block as long as all before it."""
        room = sum(block.count for block in self._blocks)
        if self._seen <= room:
            return
        count = min(max(self._seen - room, room), len(self._row) - room)
        size = sum(v.numel() * v.element_size() for v in self.template.values())
        place: torch.device | Path = self.device
        if (room + count) * size > self.in_memory:
            self._folder = self._folder or tempfile.TemporaryDirectory(prefix="fltune-")
            place = Path(self._folder.name)
        self._blocks.append(Block(self.template, room, count, place))

    def state_dict(self) -> dict[str, Any]:
        """Return the rows in use and the template, for a checkpoint.

        The template depends on the initial model, which a resumed run does not have any more. All
        rows are in memory at once, whatever ``in_memory`` says.
        """
        rows = {
            name: torch.cat(
                [start.new_empty((0, *start.shape), device=self.device)]
                + [
                    block.rows(name)[: max(self._seen - block.first, 0)].to(self.device)
                    for block in self._blocks
                ]
            )
            for name, start in self.template.items()
        }
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
        self._blocks = []
        self._grow()
        self._write(torch.arange(self._seen), state["rows"])
