"""gate.toml: its records, and reading it strictly."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import msgspec

from gate.errors import UsageError
from gate.gain_config import EconomicsConfig, ServingConfig
from gate.records import Claim, Criterion, Purpose, Record

MOST_RESAMPLES = 10_000_000
LEAST_TAIL = 10  # resamples beyond a p-value of alpha
MOST_VALID_DAYS = 365  # versions, traffic and hardware move on
ROOT_MARKERS = (".git", "pyproject.toml")


class ModelConfig(Record, frozen=True, kw_only=True):
    """Which model both arms run. ``trust_remote_code`` runs code from the model's repository.

    id empty, as where [model] is left out: no arm runs a model here.
    """

    id: str = ""
    dtype: str = "float32"
    device: str = "auto"
    trust_remote_code: bool = False

    def __post_init__(self) -> None:
        """Allow only the dtypes that the noise bound knows."""
        allowed = ("float32", "bfloat16", "float16")
        if self.dtype not in allowed:
            msg = f"dtype = {self.dtype!r}; allowed are {', '.join(allowed)}"
            raise ValueError(msg)


class AllowedDifference(Record, frozen=True, kw_only=True):
    """A provenance field that may differ between the arms, and why."""

    field: str
    reason: str


class RunConfig(Record, frozen=True, kw_only=True):
    """How a run is carried out."""

    batch: int = 8
    memory_gib: float | None = None  # for caches and logits; None: 70% of what is free
    alpha: float = 0.001
    max_dropped: float = 0.02
    timing_per_class: int = 2
    allow_differences: tuple[AllowedDifference, ...] = ()
    allow_unknown_acceptance: str = ""
    approved: str = ""  # a baseline under baselines/ that 'gate approve' wrote
    acceptance_reference: str = ""  # what the approved candidate took; empty: the baseline's
    servers: Literal["in_turn", "side_by_side"] = "in_turn"  # that the gate starts
    skip_conformance: str = ""  # a reason, where a decoder cannot take the conformance requests
    repeat_requests: int = 8  # sent to both arms again, in other company and at another width
    float32_share: float = 1.0  # of each request class, run in float32 too where dtype is another
    skip_float32: str = ""  # a reason, where a run in 16 bits goes without it
    resamples: int = 100_000
    valid_days: int = 30  # how long a decision may be used
    waivers: str = ""  # a file inside the project; empty: waivers.toml beside gate.toml, if any

    def _reasons(self) -> tuple[str, ...]:
        return self.allow_unknown_acceptance, self.skip_conformance, self.skip_float32

    def __post_init__(self) -> None:
        """Check ranges, so that no run starts that could not be judged."""
        checks = (
            (self.batch >= 1, f"batch = {self.batch}; it must be at least 1"),
            (
                self.memory_gib is None or 0 < self.memory_gib < float("inf"),
                f"memory_gib = {self.memory_gib}; it must be above 0",
            ),
            (0 < self.alpha < 1, f"alpha = {self.alpha}; it must lie between 0 and 1"),
            (
                0 <= self.max_dropped < 1,
                f"max_dropped = {self.max_dropped}; allowed is 0 to below 1",
            ),
            (
                self.resamples * self.alpha >= LEAST_TAIL and self.resamples <= MOST_RESAMPLES,
                f"resamples = {self.resamples}; {LEAST_TAIL} / alpha to {MOST_RESAMPLES} allowed",
            ),
            (
                all(text == text.strip() for text in self._reasons()),
                "a reason is blank or has blanks around it; write why, or leave the key out",
            ),
            (self.repeat_requests >= 1, f"repeat_requests = {self.repeat_requests}; at least 1"),
            (
                0 < self.float32_share <= 1,
                f"float32_share = {self.float32_share}; allowed is above 0 to 1",
            ),
            (self.timing_per_class >= 0, f"timing_per_class = {self.timing_per_class}; at least 0"),
            (
                1 <= self.valid_days <= MOST_VALID_DAYS,
                f"valid_days = {self.valid_days}; 1 to {MOST_VALID_DAYS} allowed",
            ),
        )
        for holds, message in checks:
            if not holds:
                raise ValueError(message)


class Config(Record, frozen=True, kw_only=True):
    """The whole of gate.toml. An arm's table is its kind and that kind's options.

    folder: where relative paths start, from the file's own folder.
    """

    schema: int
    folder: str = "."
    evalset: str
    baseline: dict[str, object]
    candidate: dict[str, object]
    model: ModelConfig = ModelConfig()
    referee: ModelConfig = ModelConfig()  # scores servers' tokens; id empty: none is named
    claim: Claim = "lossless"
    purpose: Purpose = "content"
    seed: int = 0
    run: RunConfig = RunConfig()
    serving: ServingConfig = ServingConfig()
    economics: EconomicsConfig = EconomicsConfig()
    criteria: tuple[Criterion, ...] = ()

    @property
    def judges_in_float32(self) -> bool:
        """Whether decoders run in float32 beside a run in 16 bits, for what is wrong in them."""
        is_rounded = self.model.dtype != "float32"
        return is_rounded and self.claim != "bounded" and not self.run.skip_float32

    def __post_init__(self) -> None:
        """Know the schema, and let no two criteria share a name."""
        if self.schema != 1:
            msg = f"schema = {self.schema}; this version reads schema 1"
            raise ValueError(msg)
        if self.seed < 0:
            msg = f"seed = {self.seed}; it must be 0 or above"
            raise ValueError(msg)
        names = [criterion.name for criterion in self.criteria]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            msg = f"criteria named twice: {', '.join(twice)}; give each its own name"
            raise ValueError(msg)


class Project(Record, frozen=True, kw_only=True):
    """A configuration and where it stands: relative paths start at ``folder``."""

    config: Config
    path: Path
    folder: Path
    root: Path  # the repository; no configured path may leave it


def load_project(path: Path) -> Project:
    """Read a gate.toml. Raises UsageError naming file, key path and what is wrong."""
    folder = path.resolve().parent
    try:
        config = msgspec.toml.decode(path.read_bytes(), type=Config)
    except FileNotFoundError as error:
        msg = f"{path}: no such file; write one (docs/configuration.md) or name one with --config"
        raise UsageError(msg) from error
    except OSError as error:
        msg = f"{path}: cannot be read ({error.strerror}); check the path given with --config"
        raise UsageError(msg) from error
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        msg = f"{path}: {error}; correct it (docs/configuration.md lists every key)"
        raise UsageError(msg) from error
    project = Project(config=config, path=path.resolve(), folder=folder, root=find_root(folder))
    return msgspec.structs.replace(project, folder=resolve_inside(project, "folder", config.folder))


def without_timing(project: Project) -> Project:
    """Return the project with no timing prompts: nothing is measured of the gain."""
    run = msgspec.structs.replace(project.config.run, timing_per_class=0)
    serving = ServingConfig(production_batch=0, profile=False)
    config = msgspec.structs.replace(project.config, run=run, serving=serving)
    return msgspec.structs.replace(project, config=config)


def find_root(folder: Path) -> Path:
    """Return the nearest folder upwards that is a repository or Python project, else ``folder``."""
    for candidate in (folder, *folder.parents):
        if any((candidate / marker).exists() for marker in ROOT_MARKERS):
            return candidate
    return folder


def resolve_inside(project: Project, key: str, value: str) -> Path:
    """Resolve a configured path; it may not leave the project. Raises UsageError."""
    path = (project.folder / value).resolve()
    if not path.is_relative_to(project.root):
        msg = (
            f"{project.path.name}: {key} = {value!r} leaves the project folder {project.root}; "
            "move it inside"
        )
        raise UsageError(msg)
    return path
