"""Which model a server serves, and which server it is: asked once, before anything else."""

from __future__ import annotations

from collections.abc import Callable

from gate.decoders.endpoint_client import Outcome
from gate.decoders.endpoint_options import EndpointOptions
from gate.decoders.endpoint_profiles import PROFILES, Profile
from gate.errors import RunError
from gate.records import Record

MODELS = "/v1/models"
UNLISTED = ("HTTP 403", "HTTP 404", "HTTP 405", "HTTP 501")
"""Answers of servers that list no models, or not to everybody; a named model may still answer."""
MOST_NAMED = 5
VERSION_LENGTH = 100
Ask = Callable[..., Outcome]


class Identity(Record, frozen=True, kw_only=True):
    """Which model a server serves, and which server it is."""

    model: str
    profile: str
    version: str


def identify(ask: Ask, options: EndpointOptions) -> Identity:
    """Return model, kind and version. Raises RunError where the server cannot be worked with."""
    outcome = ask(MODELS)
    listed = _list_models(outcome.value)
    if not listed and not options.model:
        msg = (
            f"the server lists no model ({outcome.error or 'an empty list'}); start it, "
            "correct base_url or api_key_env, or name the model"
        )
        raise RunError(msg)
    if outcome.error and not outcome.error.startswith(UNLISTED):
        msg = (
            f"the server cannot be asked ({outcome.error}); start it, or correct base_url "
            "or api_key_env"
        )
        raise RunError(msg)
    if len(listed) > 1 and not options.model:
        named = ", ".join(list(listed)[:MOST_NAMED])
        msg = f"the server lists {len(listed)} models ({named}, ...); name one with model"
        raise RunError(msg)
    owner = next(iter(listed.values()), "")
    profile = options.profile if options.profile != "auto" else _find_profile(owner)
    model = options.model or next(iter(listed))
    return Identity(model=model, profile=profile, version=_read_version(ask, PROFILES[profile]))


def _list_models(value: object) -> dict[str, str]:
    """Return model name -> owner, without adapters of a listed model and its other names."""
    data = value.get("data") if isinstance(value, dict) else None
    rows = data if isinstance(data, list) else []
    found: dict[str, tuple[str, str]] = {}
    for row in rows:
        if isinstance(row, dict) and isinstance(row.get("id"), str) and not row.get("parent"):
            root = str(row.get("root") or row["id"])
            found.setdefault(root, (row["id"], str(row.get("owned_by") or "")))
    return dict(found.values())


def _find_profile(owner: str) -> str:
    return next((p.name for p in PROFILES.values() if p.owner and p.owner == owner), "openai")


def _read_version(ask: Ask, profile: Profile) -> str:
    if not profile.version_path:
        return "not told"
    value = ask(profile.version_path).value
    known = value if isinstance(value, dict) else {}
    found = [known[key] for key in profile.version_keys if isinstance(known.get(key), str)]
    return found[0][:VERSION_LENGTH] if found else "not told"
