"""``gate selftest``: the fault catalogue and the lossless controls through the pipeline.

Resumable: one result file per fault and control. Which criterion caught what, at which
strength, and how often a control was flagged: the gate's own error rates.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from pathlib import Path

from gate.config import Project
from gate.decoders.base import load_object
from gate.errors import UsageError
from gate.plan import SESSION, make_plan
from gate.progress import Progress
from gate.selftest.bench import open_bench
from gate.selftest.examiner import Examiner
from gate.selftest.jobs import run_shares, share_arguments
from gate.selftest.rows import SelfTest, describe, write_json
from gate.selftest.sending import Options
from gate.store import RunStore

__all__ = ["Options", "SelfTest", "describe", "describe_catalogue", "run_selftest", "write_json"]
Now = Callable[[], dt.datetime]


def run_selftest(
    project: Project, out: Path, progress: Progress, now: Now, options: Options
) -> SelfTest:
    """Run what has no result yet. Raises UsageError for ids that are not in the catalogue."""
    catalogue, controls = load_object("gate.faults:CATALOGUE"), load_object("gate.faults:CONTROLS")
    unknown = sorted({*options.only} - {*catalogue} - {*controls})
    if unknown:
        msg = f"--only names {', '.join(unknown)}, which the catalogue does not hold"
        raise UsageError(msg)
    plan = make_plan(project, progress)
    mark = plan.fingerprint.removeprefix("sha256:")[:12]
    store = RunStore(out / f"selftest-{'quick' if options.quick else 'full'}-{mark}")
    session = load_object(f"{SESSION}:Session")(plan.resolved, project.config.model, project.folder)
    examiner = Examiner(open_bench(plan, session, store, progress), options)
    wanted = [i for i in (*controls, *catalogue) if not options.only or i in options.only]
    with progress.bar("self-test", len(wanted)) as advance:
        missing = [name for name in wanted if not examiner.has_row(name)]
        advance(len(wanted) - len(missing))
        if options.jobs > 1 and len(missing) > 1:
            session.model.model.forget()  # the shares remember for themselves
            arguments = share_arguments(project.path, out, quick=options.quick)
            run_shares(arguments, missing, options.jobs, examiner.watch(missing, advance))
        else:
            for name in missing:
                examiner.test(name)
                advance(1)
    return examiner.report(wanted, now())


def describe_catalogue() -> list[str]:
    """Return every fault and control with its sentence."""
    entries = {**load_object("gate.faults:CATALOGUE"), **load_object("gate.faults:CONTROLS")}
    return [f"{name:24} {entry.what}" for name, entry in entries.items()]
