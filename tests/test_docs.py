"""The documentation names what exists."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest

from gate import config, defaults, evalset, gain_config, waivers
from gate.decoders import base, endpoint_options, options
from gate.own_criteria import merge_criteria
from gate.records import Criterion

ROOT = Path(__file__).parents[1]
CONFIGURATION = (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8")
RECORDS = (
    config.Config,
    config.ModelConfig,
    config.RunConfig,
    config.AllowedDifference,
    gain_config.EconomicsConfig,
    gain_config.ServingConfig,
    Criterion,
    options.AutoregressiveOptions,
    options.LookaheadOptions,
    options.PythonOptions,
    endpoint_options.EndpointOptions,
    endpoint_options.ServerOptions,
)


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: record.__name__)
def test_every_key_of_gate_toml_is_documented(record: type[msgspec.Struct]) -> None:
    missing = [
        name
        for name in record.__struct_fields__
        if not re.search(rf"(`{name}`|\[{name}\]|{name} = )", CONFIGURATION)
    ]
    assert missing == []


def test_every_measure_is_documented() -> None:
    assert [name for name in sorted(defaults.MEASURES) if f"`{name}`" not in CONFIGURATION] == []


@pytest.mark.parametrize("kind", sorted(base.REGISTRY))
def test_every_decoder_kind_is_documented(kind: str) -> None:
    assert f'kind = "{kind}"' in CONFIGURATION
    assert f"`{kind}`" in (ROOT / "docs" / "decoders.md").read_text(encoding="utf-8")


def test_the_example_of_the_configuration_is_valid() -> None:
    example = CONFIGURATION.split("```toml\n")[1].split("```")[0]
    decoded = msgspec.toml.decode(example, type=config.Config)
    for arm in ("baseline", "candidate"):
        base.read_spec(arm, getattr(decoded, arm))


PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
TABLES = {
    f"{page.name} {n}": table
    for page in PAGES
    for n, table in enumerate(re.findall(r"```toml\n(.*?)```", page.read_text("utf-8"), re.DOTALL))
} | {
    str(path.relative_to(ROOT)): path.read_text("utf-8")
    for path in [ROOT / "gate.toml", *sorted((ROOT / "examples").glob("*/gate.toml"))]
}
ARM = {"kind": "autoregressive"}
REST = {"schema": 1, "evalset": "evalsets/ours", "baseline": ARM, "candidate": ARM}
"""What a part of a gate.toml stands in."""


@pytest.mark.parametrize("name", TABLES)
def test_every_table_that_is_shown_loads(name: str) -> None:
    table = msgspec.toml.decode(TABLES[name])
    if "classes" in table:
        assert msgspec.convert(table, evalset.EvalsetSpec).classes
        return
    if "waiver" in table:
        assert msgspec.convert(table, waivers.WaiverFile).waiver
        return
    found = msgspec.convert({**REST, **table}, config.Config)
    for arm in ("baseline", "candidate"):
        table = getattr(found, arm)
        assert base.read_spec(arm, table).kind == table["kind"]
    known = defaults.default_criteria(
        found.claim, found.purpose, found.model.dtype, 0.02, own_baseline=True
    )
    assert merge_criteria(known, found.criteria, found.claim)


@pytest.mark.parametrize(
    "page", ["README.md", *(f"docs/{path.name}" for path in sorted((ROOT / "docs").glob("*.md")))]
)
def test_links_lead_somewhere(page: str) -> None:
    path = ROOT / page
    links = re.findall(r"\]\(([^)#:]+)\)", path.read_text(encoding="utf-8"))
    assert [link for link in links if not (path.parent / link).exists()] == []
