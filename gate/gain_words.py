"""The gain in sentences: for verdicts, and for the first screen."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from gate.records import Comparison, Criterion

N_NAMED = 6
NOT_FREE = 1.1  # plain steps that the widest step costs


def explain_seconds(_: Criterion, comparison: Comparison) -> str:
    """Return what a request costs in device-seconds, and why."""
    estimate = comparison.difference
    place = "" if comparison.group == "all" else f" on {comparison.group}"
    if estimate is None:
        return f"the device-seconds per request were not measured{place}"
    low, high = (f"{v:.2f}" if v is not None else "unbounded" for v in estimate.interval)
    sentence = (
        f"a request{place} takes {estimate.statistic:.2f} times the baseline's device-seconds "
        f"({low} to {high})"
    )
    why = explain_steps(comparison.detail)
    return f"{sentence}: {why}" if why else sentence


def explain_steps(detail: Mapping[str, object]) -> str:
    """Return the step's cost beside the tokens it brings, and where that breaks even."""
    tokens, cost = detail.get("tokens_per_step"), detail.get("step_cost_ratio")
    if not (isinstance(tokens, float) and isinstance(cost, list) and isinstance(cost[0], float)):
        return ""
    rows = detail.get("rows_per_step")
    width = f" of {rows:.0f} rows" if isinstance(rows, float) else ""
    sentence = f"a step{width} costs {cost[0]:.2f} plain steps and brings {tokens:.2f} tokens"
    return f"{sentence}{_explain_break_even(detail)}"


def _explain_break_even(detail: Mapping[str, object]) -> str:
    points, now = detail.get("break_even"), detail.get("accepted_per_draft")
    needed = points.get("tokens_per_step") if isinstance(points, Mapping) else None
    if not isinstance(points, Mapping) or not isinstance(needed, float):
        return ""
    sentence = f"; it would break even at {needed:.2f} tokens per step"
    if not isinstance(now, float):
        return sentence
    share = points.get("accepted_per_draft")
    if not isinstance(share, float):
        return f"{sentence}, more than with all of its drafts accepted ({now:.1%} were)"
    return f"{sentence}, with {share:.1%} of its drafts accepted ({now:.1%} were)"


def explain_curve(profile: Comparison) -> str:
    """Return what steps of more rows cost on this device; empty where that was not measured."""
    curve = profile.detail.get("curve")
    points = [one for one in curve if isinstance(one, list)] if isinstance(curve, list) else []
    costs = {one[1]: one[3] for one in points if one[0] == 1 and one[1] > 1}
    if not costs or max(costs.values()) < NOT_FREE:
        return ""
    rows, prices = _list(f"{n}" for n in costs), _list(f"{one:.2f}" for one in costs.values())
    return f"rows are not free here: steps of {rows} rows cost {prices} plain steps"


def _list(words: Iterable[str]) -> str:
    found = list(words)
    return " and ".join([", ".join(found[:-1]), found[-1]] if found[1:] else found)


def explain_cost(_: Criterion, comparison: Comparison) -> str:
    """Return a request's cost in both arms."""
    place = "" if comparison.group == "all" else f" on {comparison.group}"
    if comparison.baseline is None or comparison.candidate is None:
        return f"the cost per request was not measured{place}"
    before, after = comparison.baseline * 1000, comparison.candidate * 1000
    return f"a thousand requests{place} cost {after:.4g} USD, {before:.4g} USD without the change"


def note_gain(comparisons: Sequence[Comparison]) -> list[str]:
    """Return what belongs on the first screen: hidden losses, why, and what to route."""
    found = {(one.measure, one.group): one for one in comparisons}
    whole = found.get(("device_seconds", "all"))
    notes = []
    if whole is not None:
        hidden = _read_names(whole.detail, "hidden_by_blend")
        if hidden:
            notes.append(
                f"the blend hides a loss: {_join(hidden)} cost more under the candidate, although "
                "the whole traffic costs less"
            )
        why = explain_steps(whole.detail)
        low = whole.difference.interval[0] if whole.difference else None
        if why and low is not None and low > 1.0:  # proven, not a point that leans that way
            notes.append(f"the candidate costs more here: {why}")
            curve = explain_curve(found["profile", "all"]) if ("profile", "all") in found else ""
            notes += [curve] if curve else []
    routing = found.get(("routing", "all"))
    if routing is not None and routing.difference is not None:
        notes.append(explain_routing(routing))
    return notes


def explain_routing(routing: Comparison) -> str:
    """Return which classes to route, and what the routed traffic then costs."""
    chosen = _read_names(routing.detail, "chosen")
    kept = routing.detail.get("kept")
    n_kept = len(kept) if isinstance(kept, Mapping) else 0
    if not chosen or routing.difference is None:
        return "route nothing: in no request class does the interval say that the candidate saves"
    high = routing.difference.interval[1]
    bound = "" if high is None else f", at most {high:.2f}"
    rest = f" and leave the other {n_kept} with the baseline" if n_kept else ""
    return (
        f"route {_join(chosen)} to the candidate{rest}: the traffic then takes "
        f"{routing.difference.statistic:.2f} of the baseline's device-seconds{bound}"
    )


def _read_names(detail: Mapping[str, object], key: str) -> list[str]:
    value = detail.get(key)
    return [str(one) for one in value] if isinstance(value, list | tuple) else []


def _join(names: Sequence[str]) -> str:
    shown = ", ".join(names[:N_NAMED])
    return shown if len(names) <= N_NAMED else f"{shown} and {len(names) - N_NAMED} more"
