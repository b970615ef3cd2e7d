"""Guesses as one tree per step, grown best first to a budget of rows.

Each node's law of the next token is a mixture (mixture.py) of what earlier rows said and what
the text said before (sources.py); the likeliest node not yet in the tree joins it, until the
budget is spent. Shared prefixes so cost one row, and rows go where acceptance is likeliest. The
window has no rows of its own: what rejected rows said of the coming positions takes its place.
All rows are verified, and every one is read: its best tokens feed the next trees.

Sampled requests: the sampler takes argmax(log q + g) with the noise g of the position, so
guesses may use the same noise. A token's chance is then taken as proportional to q exp(g): no
more certain than that, since a guess of q is not q.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush

import numpy as np

from gate.decoders.alike import Alike
from gate.decoders.budget import Budget, spread_costs
from gate.decoders.drafting import ExtraRows, Tree
from gate.decoders.engine import PROMPT_ROWS
from gate.decoders.mixture import Mixture, Situation, find_situation
from gate.decoders.options import LookaheadOptions
from gate.decoders.sources import Common, History, Law, Match, Places, Recycled, make_laws
from gate.decoders.trust import Trust
from gate.noise import gumbel, stream_key
from gate.records import Request

LEAST = 1e-4
"""Probability of a path below which no row is spent."""
Children = list[tuple[int, float]]


@dataclass(slots=True)
class Node:
    """A row of the tree. tail: its last three tokens.

    stated: what its law says, likeliest first. children: with the chances that are believed.
    """

    depth: int
    chance: float
    tail: tuple[int, ...]
    matches: Sequence[Match]
    laws: Sequence[Law | None] = ()
    situation: Situation = (0, 0)
    children: Children = field(default_factory=list)
    stated: Children = field(default_factory=list)


class TreeDrafter:
    """The guesses of one request; its state dies with it, rows that are shared left out."""

    n_top = 8

    def __init__(
        self,
        options: LookaheadOptions,
        request: Request,
        prompt: Sequence[int],
        embeddings: np.ndarray | None = None,
        shared: Recycled | None = None,
    ) -> None:
        """``options.rows`` is set. embeddings: of the vocabulary, projected (alike.py).

        shared: what rows of other requests said, to be read and added to; None: nothing is shared.
        """
        rows = options.rows or 1
        self.max_tree = rows - 1
        self._sources = frozenset(options.sources)
        # where rows have a price, so has reading the prompt's
        self.n_prompt = PROMPT_ROWS if options.recycles and not options.step_cost else 0
        costs = spread_costs(options.step_cost, rows) if options.step_cost else None
        self._budget = Budget(costs)
        self._trust = Trust() if options.step_cost else None
        sampling = request.sampling
        self._temperature = sampling.temperature
        seed = 0 if sampling.seed is None else sampling.seed
        self._noise_key = stream_key(seed, request.id, request.repeat)
        self._knows_noise = options.shared_noise and sampling.temperature > 0.0
        self._n_prompt, self._n_output = len(prompt), 0
        self._history, self._places = History(), Places()
        self._recycled = Recycled() if shared is None else shared
        self._common, self._alike = Common(), Alike(embeddings)
        self._found_alike: dict[int, Law | None] = {}
        self._mixture = Mixture()
        self._history.extend(prompt)
        self._tree = Tree()
        self._nodes: list[Node] = []
        self._path: Sequence[int] = ()

    # ---------------------------------------------------------------- guesses

    def propose(self, last: int, output: Sequence[int], max_depth: int) -> Tree:  # noqa: ARG002
        """Return the tree behind the last committed token."""
        self._catch_up(output)
        self._tree, self._nodes = Tree(), []
        self._budget.begin()
        if self.max_tree > 0 and max_depth > 0:
            self._grow(max_depth)
        return self._tree

    def _catch_up(self, output: Sequence[int]) -> None:
        """Take the tokens committed since: into the text, and into the weights."""
        new = output[self._n_output :]
        for row, token in zip(self._path, new, strict=False):
            node = self._nodes[row]
            self._mixture.observe(node.laws, node.situation, token)
            if self._trust:
                self._trust.observe(node.stated, node.situation, token)
        self._path = ()
        self._n_output = len(output)
        self._history.extend(new)
        self._places.forget(len(self._history.tokens))

    def _grow(self, max_depth: int) -> None:
        tail = tuple(self._history.tokens[-3:])
        matches = self._history.match_end() if "ngrams" in self._sources else ()
        self._nodes.append(self._expand(Node(0, 1.0, tail, matches)))
        self._grow_best_first(max_depth)
        self._cut()

    def _grow_best_first(self, max_depth: int) -> None:
        """Add the likeliest nodes. heap: (-chance, order, parent, which child)."""
        heap: list[tuple[float, int, int, int]] = []
        self._push(heap, 0, 0)
        budget = self._budget
        while heap and len(self._tree.tokens) < self.max_tree and budget.admits(-heap[0][0]):
            chance, _, parent, which = heappop(heap)
            budget.add(-chance)
            self._push(heap, parent, which + 1)
            row = self._add(parent, self._nodes[parent].children[which][0], -chance, max_depth)
            self._push(heap, row, 0)

    def _push(self, heap: list[tuple[float, int, int, int]], row: int, which: int) -> None:
        node = self._nodes[row]
        if which < len(node.children):
            chance = node.chance * node.children[which][1]
            if chance >= LEAST:
                heappush(heap, (-chance, row, row, which))

    def _add(self, parent: int, token: int, chance: float, max_depth: int) -> int:
        above = self._nodes[parent]
        row = self._tree.append(parent, token)
        matches: Sequence[Match] = ()
        if "ngrams" in self._sources:
            matches = self._history.match_child(above.matches, above.tail[-1], token)
        node = Node(above.depth + 1, chance, (*above.tail, token)[-3:], matches)
        self._nodes.append(self._expand(node) if node.depth < max_depth else node)
        return row

    def _expand(self, node: Node) -> Node:
        """Find the law of the token behind a node."""
        three, two, one = self._recycled.find(node.tail)
        said, suffix = self._history.read(node.matches)
        place = len(self._history.tokens) + node.depth
        common, alike = (None, None) if one else self._find_rest(node.tail[-1])
        node.laws = (three, two, one, said, self._places.find(place), common, alike)
        node.situation = find_situation(node.laws, suffix)
        law = self._mixture.mix(node.laws, node.situation)
        if self._knows_noise and law:
            law = self._add_noise(law, place - self._n_prompt)
        node.children = node.stated = sorted(law.items(), key=_by_chance)
        if self._trust:
            node.children = self._trust.correct(node.stated, node.situation)
        return node

    def _find_rest(self, token: int) -> tuple[Law | None, Law | None]:
        """Laws behind a token of which no row said anything: common tokens, and of its likes."""
        if token not in self._found_alike:
            self._found_alike[token] = self._alike.find(token, self._recycled.find_one)
        return self._common.find(), self._found_alike[token]

    def _add_noise(self, law: dict[int, float], position: int) -> dict[int, float]:
        noise = gumbel(self._noise_key, position, np.fromiter(law, dtype=np.int64))
        chances = np.fromiter(law.values(), dtype=np.float64) * np.exp(noise)
        chances *= sum(law.values()) / chances.sum()  # what no source knows stays unknown
        return dict(zip(law, chances.tolist(), strict=True))

    def _cut(self) -> None:
        """Keep as many of the nodes as the budget says."""
        kept = self._budget.n_kept
        if kept < len(self._tree.tokens):
            self._tree.cut(kept)
            del self._nodes[kept + 1 :]

    # --------------------------------------------------------------- learning

    def extra_rows(self) -> ExtraRows | None:
        """No rows beside the tree: the window is part of it."""
        return None

    def observe(self, best: Sequence[int], n_emitted: int) -> None:
        """Nothing: :meth:`learn` is told more."""

    def learn(self, tree: Tree, values: np.ndarray, ids: np.ndarray, path: Sequence[int]) -> None:
        """Take the best tokens of every row and the rows that were kept.

        values, ids: (1 + len(tree.tokens), n_top): logits, nats, and tokens.
        """
        if tree is self._tree and self._nodes:
            self._path = path
            self._budget.observe(len(self._nodes), len(path))
        laws = self._make_laws(values, ids)
        if "recycled" in self._sources:
            self._recycle(self._find_tails(tree), laws)
        if "window" in self._sources:
            self._remember_places(tree, laws, path)

    def learn_prompt(self, values: np.ndarray, ids: np.ndarray) -> None:
        """Take the best tokens of the prompt's first rows: (n, n_top), logits and tokens."""
        tokens = self._history.tokens
        tails = [tuple(tokens[max(0, at - 2) : at + 1]) for at in range(len(values))]
        self._recycle(tails, self._make_laws(values, ids))

    def _make_laws(self, values: np.ndarray, ids: np.ndarray) -> list[Law]:
        chances = make_laws(values, self._temperature).tolist()
        return [dict(zip(i, p, strict=True)) for i, p in zip(ids.tolist(), chances, strict=True)]

    def _recycle(self, tails: Sequence[tuple[int, ...]], laws: Sequence[Law]) -> None:
        for tail, law in zip(tails, laws, strict=True):
            self._recycled.add(tail, law)
            self._common.add(law)
            self._alike.add(tail[-1])
        self._found_alike = {}

    def _find_tails(self, tree: Tree) -> list[tuple[int, ...]]:
        tails = [tuple(self._history.tokens[-3:])]
        for parent, token in zip(tree.parents, tree.tokens, strict=True):
            tails.append((*tails[parent], token)[-3:])
        return tails

    def _remember_places(self, tree: Tree, laws: Sequence[Law], path: Sequence[int]) -> None:
        """Rows that were kept are past; the others say what may stand further on."""
        kept = frozenset(path)
        start = len(self._history.tokens)
        is_own = tree is self._tree
        self._places.add(
            (start + depth, self._nodes[row].chance + 1e-3 if is_own else 1.0, laws[row])
            for row, depth in enumerate(tree.depths, start=1)
            if row not in kept
        )


def _by_chance(child: tuple[int, float]) -> float:
    return -child[1]
