"""Loading an evalset: what is read, and what is refused with file, line and next step."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from gate import evalset as evalset_module
from gate.errors import UsageError
from gate.evalset import Evalset, load_evalset, map_classes
from tests.evalsets import SUMS, make_project, timing_row, write_evalset, write_rows

REPOSITORY = Path(__file__).parents[1]
Break = Callable[[Path], object]


def load(root: Path, value: str = "tiny") -> Evalset:
    return load_evalset(make_project(root), "evalset", value)


def edit(name: str, old: str, new: str) -> Break:
    def apply(folder: Path) -> None:
        text = (folder / name).read_text()
        assert old in text
        (folder / name).write_text(text.replace(old, new, 1))

    return apply


def test_the_smoke_evalset_loads_whole() -> None:
    evalset = load(REPOSITORY, "evalsets/smoke")
    assert sum(len(rows) for rows in evalset.documents.values()) == 70
    assert len(evalset.timing) == 40
    assert map_classes(evalset.spec)["smoke_code"] == "code"
    assert len(evalset.sha256) == 64


def test_documents_keep_their_order_and_every_field(tmp_path: Path) -> None:
    write_evalset(tmp_path / "tiny")
    evalset = load(tmp_path)
    assert list(evalset.documents["sums"]) == SUMS
    assert list(evalset.tasks) == ["sums", "objects"]
    assert [row.id for row in evalset.timing][:2] == ["maths-0", "maths-1"]


def test_the_hash_follows_contents_and_names_and_nothing_else(tmp_path: Path) -> None:
    folder = write_evalset(tmp_path / "tiny")
    first = load(tmp_path).sha256
    (folder / "notes.md").write_text("not part of the evalset")
    assert load(tmp_path).sha256 == first
    (folder / "sums.yaml").rename(folder / "renamed.yaml")
    renamed = load(tmp_path).sha256
    edit("sums.jsonl", "0 + 0", "0 + 00")(folder)
    assert len({first, renamed, load(tmp_path).sha256}) == 3


REFUSED: dict[str, tuple[Break, str]] = {
    "no evalset.toml": (lambda f: (f / "evalset.toml").unlink(), r"evalset\.toml: no such file"),
    "unknown key": (
        edit("evalset.toml", "traffic_share = 0.25", "traffic_share = 0.25\nslo = 2"),
        r"evalset\.toml: .*`slo`.*\$\.classes\[.*\].*correct it",
    ),
    "wrong type": (
        edit("evalset.toml", "0.25", '"much"'),
        r"Expected `float`, got `str` - at `\$\.classes",
    ),
    "unknown format": (edit("evalset.toml", '"json"', '"xml"'), r"Invalid enum value 'xml'"),
    "schema": (edit("evalset.toml", "schema = 1", "schema = 2"), "reads schema 1"),
    "shares": (edit("evalset.toml", "0.25", "0.2"), r"shares sum to 0\.95; make them sum to 1"),
    "share of nan": (edit("evalset.toml", "0.25", "nan"), "'structured'] has no traffic"),
    "class without traffic": (edit("evalset.toml", "0.25", "0.0"), "no traffic; give it"),
    "class without a task": (
        edit("evalset.toml", 'class = "structured"', 'class = "maths"'),
        "'structured'] has no task",
    ),
    "unknown class": (edit("evalset.toml", 'class = "maths"', 'class = "odd"'), "'odd'] that"),
    "task without YAML": (lambda f: (f / "sums.yaml").unlink(), "no YAML has 'task: sums'"),
    "YAML without task": (
        lambda f: (f / "more.yaml").write_text(
            (f / "sums.yaml").read_text().replace(": sums", ": x")
        ),
        r"the YAML of 'x' has no \[tasks\.x\]",
    ),
    "task twice": (
        lambda f: (f / "more.yaml").write_text((f / "sums.yaml").read_text()),
        "'sums' is in another file too",
    ),
    "function tag": (
        edit("sums.yaml", '"{{prompt}}"', "!function utils.text"),
        r"sums\.yaml:8: the tag on 'function' would run code.*never runs code",
    ),
    "python tag": (
        edit("sums.yaml", '"{{prompt}}"', "!!python/name:os.system"),
        r"sums\.yaml:8: .*never runs code",
    ),
    "custom tag": (edit("sums.yaml", '"{{prompt}}"', "!env HOME"), "never runs code"),
    "include": (edit("sums.yaml", "task: sums", "task: sums\ninclude: x.yaml"), "`include`"),
    "unsafe code": (
        edit("sums.yaml", "task: sums", "task: sums\nunsafe_code: true"),
        "unsafe_code",
    ),
    "hub metric": (
        edit("sums.yaml", "exact_match", "exact_match\n    hf_evaluate: true"),
        r"`hf_evaluate`.*\$\.metric_list\[0\]",
    ),
    "hub dataset": (edit("sums.yaml", "path: json", "path: gsm8k"), "Invalid enum value 'gsm8k'"),
    "broken YAML": (edit("sums.yaml", "task: sums", "task: ["), r"sums\.yaml: is not valid YAML"),
    "YAML list": (lambda f: (f / "sums.yaml").write_text("- 1\n"), "holds no mapping"),
    "no until": (edit("sums.yaml", '  until: ["\\n"]\n', ""), "no until.*name the stop strings"),
    "no budget": (edit("sums.yaml", "  max_gen_toks: 8\n", ""), "`max_gen_toks`"),
    "budget of 0": (edit("sums.yaml", "max_gen_toks: 8", "max_gen_toks: 0"), "at least 1"),
    "cold sampling": (edit("sums.yaml", "do_sample: false", "do_sample: true"), "set one above 0"),
    "unknown parameter": (edit("sums.yaml", "do_sample: false", "num_beams: 4"), "`num_beams`"),
    "multiple choice": (
        edit("sums.yaml", "generate_until", "multiple_choice"),
        "does not exercise decoding",
    ),
    "no metric": (edit("sums.yaml", "\n  - metric: exact_match", " []"), "metric_list is empty"),
    "lower is better": (
        edit("sums.yaml", "exact_match", "exact_match\n    higher_is_better: false"),
        "higher_is_better must be true",
    ),
    "filter without one answer": (
        edit("sums.yaml", "take_first", "lowercase"),
        "must end in take_first",
    ),
    "no filter": (
        edit("sums.yaml", "\n  - name: strict\n    filter:\n      - function: take_first", " []"),
        "filter_list is empty",
    ),
    "split without file": (
        edit("sums.yaml", "split: test", "split: dev"),
        "no file for test_split",
    ),
    "data outside": (
        edit("sums.yaml", "sums.jsonl", "../../sums.jsonl"),
        "leaves the evalset folder",
    ),
    "data missing": (lambda f: (f / "sums.jsonl").unlink(), r"sums\.jsonl: cannot be read"),
    "no documents": (lambda f: (f / "sums.jsonl").write_text("\n"), "no documents"),
    "not JSON": (
        edit("sums.jsonl", '{"id": "s1"', "{id: s1"),
        r"sums\.jsonl:2: is not JSON.*one object per line",
    ),
    "not an object": (lambda f: (f / "sums.jsonl").write_text("[1]\n"), r"sums\.jsonl:1: Expected"),
    "no id": (edit("sums.jsonl", '"id": "s2", ', ""), r"sums\.jsonl:3: .*no text under 'id'"),
    "empty prompt": (edit("sums.jsonl", "1 + 1 =", ""), r"sums\.jsonl:2: .*under 'prompt'"),
    "id twice": (edit("sums.jsonl", '"s2"', '"s0"'), r"sums\.jsonl:3: the id 's0' is taken"),
    "no tasks": (
        lambda f: (f / "evalset.toml").write_text('schema = 1\nname = "x"\n'),
        "no tasks and so no documents",
    ),
    "slash": (edit("evalset.toml", "tasks.sums", 'tasks."a/b"'), "holds a slash"),
    "cluster key": (
        edit("evalset.toml", 'class = "maths"', 'class = "maths"\ncluster_key = "passage"'),
        "'s0' of sums lacks its cluster_key 'passage'",
    ),
    "timing class": (
        lambda f: write_rows(f / "timing.jsonl", [timing_row("odd", 1)]),
        "has class 'odd'",
    ),
    "timing key": (
        lambda f: write_rows(f / "timing.jsonl", [timing_row("maths", 1) | {"x": 1}]),
        r"timing\.jsonl:1: .*`x`",
    ),
    "timing budget": (
        lambda f: write_rows(f / "timing.jsonl", [timing_row("maths", 1) | {"max_tokens": 0}]),
        r"timing\.jsonl:1: .*max_tokens",
    ),
    "timing prompt used elsewhere": (
        lambda f: write_rows(f / "timing.jsonl", [timing_row("maths", 1) | {"prompt": "1 + 1 ="}]),
        "'maths-1' is used elsewhere",
    ),
}


@pytest.mark.parametrize(("broken", "message"), REFUSED.values(), ids=REFUSED)
def test_a_broken_evalset_is_refused_in_one_sentence(
    tmp_path: Path, broken: Break, message: str
) -> None:
    broken(write_evalset(tmp_path / "tiny"))
    with pytest.raises(UsageError, match=message) as refused:
        load(tmp_path)
    assert "\n" not in str(refused.value)


def test_a_file_linked_from_outside_is_refused(tmp_path: Path) -> None:
    folder = write_evalset(tmp_path / "tiny")
    (folder / "sums.jsonl").rename(tmp_path / "sums.jsonl")
    (folder / "sums.jsonl").symlink_to(tmp_path / "sums.jsonl")
    with pytest.raises(UsageError, match="leaves the evalset folder"):
        load(tmp_path)


def test_the_word_function_in_a_comment_is_no_code(tmp_path: Path) -> None:
    folder = write_evalset(tmp_path / "tiny")
    edit("sums.yaml", "task: sums", "# no !function here\ntask: sums")(folder)
    assert load(tmp_path).name == "tiny"


def test_a_path_that_leaves_the_project_is_refused(tmp_path: Path) -> None:
    write_evalset(tmp_path / "tiny")
    (tmp_path / "project").mkdir()
    with pytest.raises(UsageError, match=r"gate\.toml: evalset = '\.\./tiny' leaves"):
        load(tmp_path / "project", "../tiny")


def test_a_missing_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"evalset = 'nowhere', and .* is no folder"):
        load(tmp_path, "nowhere")


def test_a_builtin_evalset_comes_from_the_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(evalset_module, "BUILTIN_FOLDER", tmp_path / "package")
    write_evalset(tmp_path / "package" / "tiny")
    assert load(tmp_path, "builtin:tiny").name == "tiny"
    with pytest.raises(UsageError, match="this version brings tiny"):
        load(tmp_path, "builtin:../tiny")


def test_an_evalset_without_timing_prompts_has_none(tmp_path: Path) -> None:
    edit("evalset.toml", 'timing = "timing.jsonl"', "")(write_evalset(tmp_path / "tiny"))
    assert load(tmp_path).timing == ()
