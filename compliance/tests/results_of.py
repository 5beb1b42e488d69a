"""A run with one of everything, for the tests of reports."""

from __future__ import annotations

import datetime

from zoo_cases import CASES

from ep_compliance.cases.case import Level
from ep_compliance.checks import all_checks
from ep_compliance.oracle.overrides import Override
from ep_compliance.running.jobs import Target
from ep_compliance.running.outcomes import Outcome, Verdict
from ep_compliance.running.results import Results
from ep_compliance.running.waivers import Waiver
from ep_core.contracts import Numerics
from ep_core.types import DeviceInfo

NASTY = "wrong <script>alert(1)</script> & \"quotes\" 'too' \x00\x1b \N{SNOWMAN}"
VERDICTS = {
    "zoo/relu": Verdict("zoo/relu", Outcome.FAIL, NASTY, 0.25),
    "zoo/add": Verdict("zoo/add", Outcome.PASS, "", 0.125, False, 2e-6, 1e-6, 5 << 20),
    "zoo/add_broadcast": Verdict("zoo/add_broadcast", Outcome.PASS, "", 0.125, False, 4e-6, 8e-6),
    "zoo/add_int": Verdict("zoo/add_int", Outcome.UNSUPPORTED, "no integers"),
    "zoo/mul": Verdict("zoo/mul", Outcome.CRASH, "crashed with SIGSEGV", peak_bytes=7 << 20),
    "zoo/sqrt": Verdict("zoo/sqrt", Outcome.PASS, "", 0.5, overridden=True),
    "zoo/softmax": Verdict("zoo/softmax", Outcome.UNSUPPORTED, "no Softmax"),
    "zoo/matmul": Verdict("zoo/matmul", Outcome.WAIVED, f"{NASTY} (zoo): off by one"),
    "zoo/identity": Verdict("zoo/identity", Outcome.QUARANTINED, f"nobody knows: {NASTY}"),
}
CHECK = all_checks()["claims/pure"]


def run_of_everything(**changes):
    """Results with verdicts of every kind."""
    settings = {
        "target": Target("zoo", options={"threads": "2"}),
        "device": DeviceInfo(
            "zoo", "0", "cpu", name="<Zoo>", fingerprint="zoo-1", properties={"cages": "<4>"}
        ),
        "level": Level.FULL,
        "jobs": [*(CASES[name] for name in VERDICTS), CHECK],
        "verdicts": [*VERDICTS.values(), Verdict(CHECK.id, Outcome.NOT_RUN, "stopped")],
        "cases_hash": "sha256:0",
        "kit_version": "0.1.0",
        "problems": ["the waiver for 'x' isn't needed"],
        "seconds": 1.5,
        "date": "2030-06-01",
        "waivers": [
            Waiver("zoo/matmul", NASTY, "javascript:1", "zoo <team>", datetime.date(9999, 12, 31))
        ],
        "overrides": [Override("zoo/sqrt", NASTY, ulps=7), Override("zoo/add", "no need", steps=1)],
        "numerics": Numerics(flushes_denormals=True),
        "workers": 2,
        "peak_bytes": 9 << 20,
        **changes,
    }
    return Results(**settings)


def good_run():
    """Results of one case that passes."""
    return run_of_everything(
        jobs=[CASES["zoo/add"]],
        verdicts=[VERDICTS["zoo/add"]],
        problems=[],
        waivers=[],
        overrides=[],
        numerics=Numerics(),
    )
