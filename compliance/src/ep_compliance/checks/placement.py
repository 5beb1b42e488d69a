"""Placement: beside other providers, cut into pieces and inside bodies, the answer stays the same.

Models go through sessions here. What is wrong then may be the core's fault too; the kit's own tests
hold the core to it with providers that are right.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator, Sequence

import onnx

from ep_compliance.checks import check
from ep_compliance.driving.bench import Bench, claims_all, run_once
from ep_compliance.driving.drive import compiled
from ep_compliance.driving.findings import Broken, NotClaimed
from ep_compliance.driving.partners.mixed import Mixed, check_near, numbers, right_answer
from ep_compliance.driving.partners.party import DEVICE_PARTNER, HOST_PARTNER, THE_TESTED, Party
from ep_core.contracts import Value
from ep_core.graph import Graph, Subgraph
from ep_core.loading.load import load_model

_SLOW_PARTNER = {"kernel_latency_us": 300, "copy_latency_us": 300}
"""The device partner's work is done a little after the host has submitted it."""

_PAIRS = ((THE_TESTED, HOST_PARTNER), (HOST_PARTNER, THE_TESTED))
_TRIOS = tuple(itertools.permutations((THE_TESTED, HOST_PARTNER, DEVICE_PARTNER)))

_ALTERNATING = """
g (float[N,N] x) => (float[N,N] y) {
    a = T(x, x)  b = P(a, x)  c = T(b, x)  d = P(c, a)  e = T(d, b)  y = P(e, x)
}"""

_IN_TURN = """
g (float[N,N] x) => (float[N,N] y, float[N,N] e) {
    a = T(x, x)  b = D(a, x)  c = T(b, a)  d = P(c, b)  e = D(d, c)  f = T(e, d)  y = D(f, a)
}"""


def _check_runs(mixed: Mixed, model: onnx.ModelProto, what: str, **fixed: Value) -> None:
    """Run with several inputs one after the other, the first ones once more in the end."""
    for seed, side in ((1, 4), (2, 4), (3, 7), (1, 4)):
        mixed.check(numbers(model, seed, side, **fixed), what)


@check("placement/two-providers")
def two_providers(bench: Bench) -> None:
    """Nodes alternate between the provider and a partner on the host, in either order."""
    with Party(bench) as party:
        model = party.model(_ALTERNATING)
        for order in _PAIRS:
            with party.open(model, order) as mixed:
                _check_runs(mixed, model, f"nodes in turns on {' and '.join(order)}")


@check("placement/three-providers")
def three_providers(bench: Bench) -> None:
    """Values go round between the provider, the host and another device, in every order."""
    with Party(bench) as party:
        model = party.model(_IN_TURN)
        for order in _TRIOS:
            with party.open(model, order, **_SLOW_PARTNER) as mixed:
                _check_runs(mixed, model, f"nodes in turns on {', '.join(order)}")


# ---------------------------------------------------------------- graphs that tempt to be wrong

_GRAPHS = {
    # Taken at once, the provider's nodes would wait for themselves.
    "a diamond that is not convex": """
    g (float[N,N] x) => (float[N,N] y) { a = T(x, x)  b = P(a, x)  c = T(a, x)  y = T(b, c) }
    """,
    "two islands in one partition": """
    g (float[N,N] x, float[N,N] z) => (float[N,N] y, float[N,N] w) {
        a = T(x, x)  b = T(z, z)  c = T(a, a)  d = T(b, b)  y = P(c, d)  w = P(d, a)
    }""",
    "a fan-out to two memories": """
    g (float[N,N] x) => (float[N,N] y, float[N,N] w, float[N,N] v) {
        a = T(x, x)  y = P(a, x)  w = D(a, x)  v = T(a, a)
    }""",
    "an output that is read on the other side": """
    g (float[N,N] x) => (float[N,N] a, float[N,N] b, float[N,N] y) {
        a = T(x, x)  b = P(a, a)  c = T(b, a)  y = T(c, b)
    }""",
    "an input that is an output": """
    g (float[N,N] x) => (float[N,N] x, float[N,N] y, float[N,N] w) { y = T(x, x)  w = P(x, y) }
    """,
    "an initializer on both sides": """
    g (float[4,4] x) => (float[4,4] y, float[4,4] w)
    <float[4,4] k = {1,2,1,1, 2,1,1,2, 1,1,2,1, 3,1,1,2}> {
        a = T(x, k)  b = P(a, k)  c = D(b, k)  y = T(c, k)  w = P(k, y)
    }""",
}


@check("placement/graphs")
def graphs(bench: Bench) -> None:
    """Diamonds, islands, fan-out, values that are outputs as well, shared initializers."""
    with Party(bench) as party:
        for what, text in _GRAPHS.items():
            model = party.model(text)
            for order in _TRIOS[::2]:
                with party.open(model, order, **_SLOW_PARTNER) as mixed:
                    feeds = [numbers(model, seed) for seed in (1, 2, 1)]
                    for feed in feeds:
                        mixed.check(feed, what)


# ---------------------------------------------------------------- bodies

_IF = """
g (float[N,N] x, bool flag) => (float[N,N] y) {
    a = T(x, x)
    b = If (flag) <
        then_branch = body () => (float[N,N] t) { s = T(a, x)  r = P(s, a)  t = T(r, x) },
        else_branch = body () => (float[N,N] e) { q = T(x, a)  e = P(q, q) }
    >
    y = T(b, a)
}"""

LOOP = """
g (float[N,N] x, int64 trips, bool go) => (float[N,N] y) {
    a = T(x, x)
    last = Loop (trips, go, x) <
        body = body (int64 i, bool going, float[N,N] h) => (bool on, float[N,N] n) {
            on = Identity(going)  s = T(h, a)  k = P(s, x)  n = T(k, a)
        }
    >
    y = P(last, a)
}"""
"""With `trips` as large as it may be, a run that doesn't end by itself."""

_SCAN = """
g (float[N,N] x, float[M,N,N] many) => (float[N,N] y, float[M,N,N] kept) {
    a = T(x, x)
    last, kept = Scan (x, many) <
        num_scan_inputs = 1,
        body = body (float[N,N] h, float[N,N] item) => (float[N,N] n, float[N,N] k) {
            s = T(item, a)  k = P(s, h)  n = T(k, x)
        }
    >
    y = P(last, a)
}"""

_NESTED = """
g (float[N,N] x, int64 trips, bool flag, bool go) => (float[N,N] y) {
    a = T(x, x)
    y = Loop (trips, go, a) <
        body = body (int64 i, bool going, float[N,N] h) => (bool on, float[N,N] n) {
            on = Identity(going)
            s = T(h, x)
            n = If (flag) <
                then_branch = inner () => (float[N,N] t) { t = T(s, a) },
                else_branch = inner () => (float[N,N] e) { u = P(h, s)  e = T(u, x) }
            >
        }
    >
}"""

_BODIES: tuple[tuple[str, str, tuple[dict[str, Value], ...]], ...] = (
    ("If", _IF, ({"flag": True}, {"flag": False}, {"flag": True})),
    ("Loop", LOOP, tuple({"trips": n, "go": True} for n in (3, 0, 1))),
    ("Scan", _SCAN, ({}, {}, {})),
    (
        "If in Loop",
        _NESTED,
        tuple({"trips": 2, "go": True, "flag": flag} for flag in (True, False)),
    ),
)


@check("placement/bodies")
def bodies(bench: Bench) -> None:
    """Parts of If, Loop and Scan bodies, with captured values that change from run to run."""
    _check_bodies(bench, whole=False)


@check("placement/whole-bodies")
def whole_bodies(bench: Bench) -> None:
    """Control flow as a whole, with captured values, between nodes of a partner."""
    with bench.open() as provider:
        if not provider.features.control_flow:
            raise NotClaimed("doesn't declare `control_flow`")
    _check_bodies(bench, whole=True)


def _check_bodies(bench: Bench, *, whole: bool) -> None:
    refused = []
    with Party(bench) as party:
        for what, text, runs in _BODIES:
            # All of a body goes to the provider where it takes the node as a whole.
            model = party.model(text.replace("P(", "T(") if whole else text, whole=whole)
            try:
                with party.open(model) as mixed:
                    for seed, fixed in enumerate(runs):
                        feeds = numbers(model, seed, **fixed)
                        mixed.check(feeds, f"{what}, {fixed or 'run ' + str(seed)}")
            except NotClaimed as reason:
                refused.append(f"{what}: {reason}")
    if len(refused) == len(_BODIES):
        raise NotClaimed("; ".join(refused))


# ---------------------------------------------------------------- pieces

_LATTICE = """
g (float[4,4] x) => (float[4,4] e, float[4,4] b) {
    a = T(x, x)  b = T(a, x)  c = T(a, a)  d = T(b, c)  e = T(d, a)
}"""


@check("placement/pieces")
def pieces(bench: Bench) -> None:
    """Every convex part of a claim compiles, and all of them at once; each gives what is right.

    The core relies on it: it looks for what a compiler doesn't like by halving a claim.
    """
    with Party(bench) as party, bench.open() as provider:
        model = party.model(_LATTICE)
        graph = load_model(model).graph
        if not claims_all(provider, graph):
            raise NotClaimed("doesn't claim five nodes together")
        feeds = [numbers(model, seed) for seed in (1, 2)]
        known = [_all_values(model, feed) for feed in feeds]
        parts = [
            Subgraph.cut(graph, chosen, f"piece_{'_'.join(map(str, chosen))}")
            for chosen in _convex_parts(graph)
        ]
        with contextlib.ExitStack() as opened:
            ready = [opened.enter_context(compiled(provider, part)) for part in parts]
            for values in known:
                for part, partition in zip(parts, ready, strict=True):
                    inputs = [values[name] for name in part.inputs]
                    got = run_once(provider, partition, inputs, len(part.outputs))
                    right = [values[name] for name in part.outputs]
                    check_near(right, got, f"nodes {list(part.indices)} of five, cut out")


def _all_values(model: onnx.ModelProto, feeds: dict[str, Value]) -> dict[str, Value]:
    """Every value of a graph whose outputs say what type all have."""
    wide = onnx.ModelProto()
    wide.CopyFrom(model)
    kind = model.graph.output[0].type
    names = [name for node in model.graph.node for name in node.output]
    del wide.graph.output[:]
    wide.graph.output.extend(onnx.ValueInfoProto(name=name, type=kind) for name in names)
    return {**feeds, **dict(zip(names, right_answer(wide, feeds), strict=True))}


def _convex_parts(graph: Graph) -> Iterator[tuple[int, ...]]:
    """Sets of nodes that no path leaves and comes back to."""
    count = len(graph.nodes)
    after = [_reachable(graph, index) for index in range(count)]
    for size in range(1, count + 1):
        for chosen in itertools.combinations(range(count), size):
            outside = set(range(count)) - set(chosen)
            between = (
                node
                for node in outside
                if any(node in after[i] for i in chosen) and after[node] & set(chosen)
            )
            if not any(True for _ in between):
                yield chosen


def _reachable(graph: Graph, index: int) -> set[int]:
    found: set[int] = set()
    for name in graph.nodes[index].outputs:
        for user in graph.consumers.get(name, ()):
            found |= {user} | _reachable(graph, user)
    return found


# ---------------------------------------------------------------- copies

_COPIED = """
g (float[6,6] x, float[6,6] z) => (float[6,6] y, float[6,6] w, float[6,6] a) {
    a = T(x, z)  b = P(a, x)  c = T(b, x)  d = D(c, a)  e = T(d, z)  y = P(e, a)  w = D(e, x)
}"""


@check("placement/copies")
def copies(bench: Bench) -> None:
    """What is copied in a run is what the placement report says, to the byte, and once only."""
    with Party(bench) as party:
        model = party.model(_COPIED)
        for order in (*_PAIRS, *_TRIOS):
            text = model if DEVICE_PARTNER in order else party.model(_COPIED.replace("D(", "P("))
            with party.open(text, order) as mixed:
                _check_copies(mixed, text)


def _check_copies(mixed: Mixed, model: onnx.ModelProto) -> None:
    told = sorted((c.source, c.target, c.nbytes or 0) for c in mixed.placement.copies)
    for seed in (1, 2, 3):
        for guest in mixed.guests.values():
            guest.copies = []
        mixed.check(numbers(model, seed), "a run whose copies are counted")
        made = sorted(copy for guest in mixed.guests.values() for copy in guest.copies or ())
        if made != told:
            raise Broken(f"run {seed}: {_text(told)} are planned, {_text(made)} are made")
    ways = [(copy.value, copy.target) for copy in mixed.placement.copies]
    if len(ways) != len(set(ways)):
        raise Broken("a value is copied twice to one memory")


def _text(made: Sequence[tuple[str, str, int]]) -> str:
    total = sum(nbytes for _, _, nbytes in made)
    return f"{len(made)} copies of {total} bytes ({sorted(set(made))})"
