"""Whole runs of the gate against servers: what cannot be scored is never certified."""

from __future__ import annotations

import json
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from gate.cli import main
from tests.endpoint_project import QUICK, SKIP, run, verdict, write_project
from tests.fake_server import KEY, serve
from tests.toy_project import CLASSES, write_rows

REPOSITORY = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project whose arms are servers."""
    return write_project(tmp_path_factory.mktemp("served"))


def at(url: str, extra: str = "") -> str:
    """An arm's lines."""
    return f'base_url = "{url}"\n{QUICK}\n{extra}'


def test_equal_texts_of_two_servers_certify_no_token(project: Path) -> None:
    with serve() as baseline, serve() as candidate:
        code, decision = run(project, at(baseline.url), at(candidate.url), run="")
    assert (code, decision["outcome"]) == (4, "INCONCLUSIVE")
    assert verdict(decision, "token certificate")["outcome"] == "INCONCLUSIVE"
    assert verdict(decision, "baseline certificate")["outcome"] == "INCONCLUSIVE"
    assert verdict(decision, "termination")["outcome"] == "PASS"
    assert verdict(decision, "conformance")["outcome"] == "PASS"


@pytest.fixture(scope="module")
def long_project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Outputs long enough for a noise bound."""
    return write_project(tmp_path_factory.mktemp("long"), n_documents=20, max_tokens=64)


def gate_tops(project: Path, **candidate: float) -> dict[str, Any]:
    """Gate two servers that tell their likeliest tokens, llama.cpp's way."""
    owner = {"owner": "llamacpp", "drafts_each": 3}
    told = {**owner, "gap": candidate.get("gap", 2.0)}
    with serve(**told) as first, serve(**{**owner, **candidate, "gap": told["gap"]}) as second:
        return run(project, at(first.url), at(second.url))[1]


def test_tokens_are_certified_by_what_the_baseline_reports_where_nothing_else_scores(
    long_project: Path,
) -> None:
    decision = gate_tops(long_project)
    assert verdict(decision, "token certificate")["outcome"] == "PASS"
    assert verdict(decision, "token certificate")["comparison"]["difference"]["n"] > 1000
    assert any("which are not independent of it" in note for note in decision["notes"])
    assert not any("no token is scored" in note for note in decision["notes"])


def test_a_second_choice_far_behind_the_best_is_a_defect_where_outputs_part(
    long_project: Path,
) -> None:
    decision = gate_tops(long_project, swap_at=40)
    assert decision["outcome"] == "FAIL"
    assert verdict(decision, "token certificate")["outcome"] == "FAIL"
    assert {fork["kind"] for fork in decision["forks"]} == {"defect"}
    assert decision["forks"][0]["regret_candidate"] == pytest.approx(2.0)


def test_a_second_choice_within_the_noise_is_a_tie(long_project: Path) -> None:
    decision = gate_tops(long_project, swap_at=40, gap=0.2)
    assert verdict(decision, "token certificate")["outcome"] == "PASS"
    assert {fork["kind"] for fork in decision["forks"]} == {"tie"}


def test_outputs_that_part_early_leave_too_little_to_certify(long_project: Path) -> None:
    decision = gate_tops(long_project, swap_at=2, gap=0.2)
    found = verdict(decision, "token certificate")
    assert found["outcome"] == "INCONCLUSIVE"
    assert "part so early" in found["reason"]


def test_a_run_of_servers_alone_imports_no_torch(project: Path) -> None:
    with serve() as baseline, serve() as candidate:
        run(project, at(baseline.url), at(candidate.url))
        code = (
            "import sys; from gate.cli import main; "
            f"main(['run', '--quiet', '--config', {str(project / 'gate.toml')!r}]); "
            "sys.exit(any(n in sys.modules for n in ('torch', 'transformers')))"
        )
        done = subprocess.run(  # noqa: S603
            [sys.executable, "-c", code], cwd=REPOSITORY, capture_output=True, check=False
        )
    assert done.returncode == 0


def test_a_server_that_loses_a_tenth_of_the_candidates_requests_fails(project: Path) -> None:
    with serve() as baseline, serve(fault=lambda n, _: "404" if n % 3 == 2 else "") as candidate:
        _, decision = run(project, at(baseline.url), at(candidate.url, 'model = "fake-model"'))
    assert decision["outcome"] != "PASS"


def test_a_wrong_key_ends_the_run_with_what_the_server_said_and_without_the_key(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TEST_KEY", "wrong-key-987654")
    with serve(key=KEY) as baseline, serve(key=KEY) as candidate:
        arms = [at(s.url, 'api_key_env = "TEST_KEY"') for s in (baseline, candidate)]
        code, decision = run(project, *arms)
    assert (code, decision["outcome"]) == (5, "ERROR")
    assert "HTTP 401" in decision["reason"]
    assert "api_key_env" in decision["reason"]
    folder = project / "reports" / decision["run_id"]
    assert not any(
        "wrong-key-987654" in path.read_text() for path in folder.rglob("*") if path.is_file()
    )


def test_two_names_of_a_model_are_an_error_before_anything_is_sent(project: Path) -> None:
    models = [{"id": name} for name in ("fake-model", "other")]
    allowed = f'{SKIP}\nallow_differences = [{{field = "model.id", reason = "two deployments"}}]'
    with serve(models=models) as server:
        arms = [at(server.url, f'model = "{model["id"]}"') for model in models]
        code, decision = run(project, *arms)
        assert server.bodies == []
        _, other = run(project, *arms, run=allowed)
    assert (code, decision["outcome"]) == (5, "ERROR")
    assert "fake-model" in decision["reason"]
    assert "model.id" in decision["reason"]
    assert other["outcome"] == "INCONCLUSIVE"


def test_a_server_that_fails_from_the_middle_of_the_probe_on_is_an_error(project: Path) -> None:
    with serve() as baseline, serve(fault=lambda n, _: "500" if n > 6 else "") as candidate:
        code, decision = run(project, at(baseline.url), at(candidate.url))
    assert (code, decision["outcome"]) == (5, "ERROR")
    assert "candidate: the server was lost while it was probed (HTTP 500" in decision["reason"]


def test_an_option_that_breaks_a_request_and_nothing_else_is_not_tried(project: Path) -> None:
    breaks = lambda _, body: "500" if body.get("frequency_penalty") else ""  # noqa: E731
    with serve(fault=breaks) as baseline, serve(fault=breaks) as candidate:
        _, decision = run(project, at(baseline.url), at(candidate.url))
    assert decision["outcome"] == "INCONCLUSIVE"
    folder = project / "reports" / decision["run_id"]
    shown = json.loads((folder / "candidate/capabilities.json").read_text())
    assert shown["honours"]["frequency_penalty"] == "not tried"
    assert "HTTP 500" in shown["why"]["frequency_penalty"]


def test_servers_that_read_a_prompt_as_another_number_of_tokens_are_not_compared(
    project: Path,
) -> None:
    with serve() as baseline, serve(n_prompt=9) as candidate:
        code, decision = run(project, at(baseline.url), at(candidate.url))
        allowed = f'{SKIP}\nallow_differences = [{{field = "prompt_tokens", reason = "known"}}]'
        _, other = run(project, at(baseline.url), at(candidate.url), run=allowed)
    assert (code, decision["outcome"]) == (5, "ERROR")
    assert "prompt_tokens" in decision["reason"]
    assert other["outcome"] == "INCONCLUSIVE"


REFUSED = (
    ('base_url = "ftp://x"', "base_url"),
    ('base_url = "http://user:secret@host"', "api_key_env"),
    ('base_url = "http://host/#secret@"', "api_key_env"),
    ('base_url = "http://127.0.0.1:{port}"', "{port}"),
    ("", "base_url"),
    ('base_url = "http://x"\nconcurrency = 0', "concurrency = 0"),
    ('base_url = "http://x"\napi_key_env = "sk-123 secret"', "not the key itself"),
    ('base_url = "http://x"\napi_key_env = "NOT_SET_ANYWHERE"', "NOT_SET_ANYWHERE"),
    ('base_url = "http://x"\nbananas = 1', "bananas"),
    ("server = {command = []}", "server.command"),
    ('server = {command = ["serve", "--api-key", "sk-1"]}', "literally"),
    ('server = {command = ["serve"], env = {API_KEY = "sk-1"}}', "literally"),
)


@pytest.mark.parametrize(("table", "named"), REFUSED)
def test_a_bad_endpoint_is_refused_by_the_name_of_its_key(
    project: Path, capsys: pytest.CaptureFixture[str], table: str, named: str
) -> None:
    with serve() as sound:
        config = project / "gate.toml"
        config.write_text(
            'schema = 1\nevalset = "evalset"\n[run]\ntiming_per_class = 1\n'
            '[baseline]\nkind = "endpoint"\n'
            f'base_url = "{sound.url}"\n[candidate]\nkind = "endpoint"\n{table}\n'
        )
        assert main(["run", "--config", str(config), "--quiet"]) == 2
    message = capsys.readouterr().err
    assert named in message
    assert "secret@" not in message


def test_a_server_and_a_local_decoder_are_not_compared(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = project / "gate.toml"
    config.write_text(
        'schema = 1\nevalset = "evalset"\n[baseline]\nkind = "autoregressive"\n'
        '[candidate]\nkind = "endpoint"\nbase_url = "http://127.0.0.1:9"\n'
    )
    assert main(["run", "--config", str(config), "--quiet"]) == 2
    assert "runtimes" in capsys.readouterr().err


def test_a_local_decoder_needs_a_model(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = project / "gate.toml"
    config.write_text(
        'schema = 1\nevalset = "evalset"\n[baseline]\nkind = "autoregressive"\n'
        '[candidate]\nkind = "lookahead"\n'
    )
    assert main(["run", "--config", str(config), "--quiet"]) == 2
    assert "[model]" in capsys.readouterr().err


def test_a_run_that_was_stopped_is_resumed_without_asking_again(project: Path) -> None:
    with serve() as baseline, serve() as candidate:
        arms = (at(baseline.url), at(candidate.url))
        _, first = run(project, *arms, run=f"{SKIP}\nbatch = 4")
        n_asked = len(candidate.bodies)
        folder = project / "reports" / first["run_id"]
        (folder / "finished").unlink()
        _, second = run(project, *arms, run=f"{SKIP}\nbatch = 4")
        assert second["run_id"] == first["run_id"]
        assert len(candidate.bodies) == n_asked
    shown = json.loads((folder / "candidate/capabilities.json").read_text())
    assert shown["honours"]["stop"] == "honoured"


def test_mixed_blocks_come_to_both_servers_at_the_same_random_times(tmp_path: Path) -> None:
    project = write_project(tmp_path)
    rows = [
        {"id": f"t-{name}-{n}", "request_class": name, "prompt": f"timing {name} {n}",
         "max_tokens": 8, "stop": []}
        for name in CLASSES for n in range(8)
    ]  # fmt: skip
    write_rows(project / "evalset/timing.jsonl", rows)
    load = '[serving]\nmixed_requests = 4\narrival_rate_per_s = 100.0\narrivals = "poisson"'
    with serve() as baseline, serve(fault=lambda *_: "slow") as candidate:
        _, decision = run(project, at(baseline.url), at(candidate.url, "") + f"\n{load}\n")
    found = {(c["measure"], c["group"]): c for c in decision["comparisons"]}
    assert found["time_ratio", "mixed"]["difference"]["n"] == 8
    assert found["time_ratio", "mixed"]["candidate"] > 0.02
    arrived = [
        [
            generation["trace"]["sent_s"]
            for file in sorted((project / "reports/latest" / arm).glob("*mixed*"))
            for generation in json.loads(file.read_text())["generations"]
        ]
        for arm in ("baseline", "candidate")
    ]
    assert len(arrived[0]) == 8
    assert arrived[0] == arrived[1]
    assert len({round(b - a, 9) for a, b in pairwise(arrived[0][:4])}) == 3
