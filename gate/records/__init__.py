"""The data of a run, as frozen records.

Records only hold data; behaviour lives in functions. Units are in the names
(``_s``, ``_bytes``, ``_usd``, ``n_`` for counts). Decoding is strict: an unknown
key or a wrong type is an error that names its path.
"""

from gate.records.base import (
    SCHEMA,
    Claim,
    Direction,
    Finish,
    Noise,
    Outcome,
    Purpose,
    Record,
    Rule,
)
from gate.records.generations import (
    Chunk,
    DraftCount,
    Generation,
    Step,
    TokenLogprob,
    TokenScores,
    Trace,
    Usage,
)
from gate.records.judgement import (
    Alternative,
    Comparison,
    Criterion,
    Decision,
    Estimate,
    Fork,
    Loosened,
    TokenView,
    Verdict,
    Waiver,
)
from gate.records.requests import Request, Sampling, needs_processing, processes_logits, prompt_ids
from gate.records.runs import (
    AcceptanceReference,
    BandProbe,
    DecoderSpec,
    MemoryControl,
    NoiseBound,
    Run,
)

__all__ = [
    "SCHEMA",
    "AcceptanceReference",
    "Alternative",
    "BandProbe",
    "Chunk",
    "Claim",
    "Comparison",
    "Criterion",
    "Decision",
    "DecoderSpec",
    "Direction",
    "DraftCount",
    "Estimate",
    "Finish",
    "Fork",
    "Generation",
    "Loosened",
    "MemoryControl",
    "Noise",
    "NoiseBound",
    "Outcome",
    "Purpose",
    "Record",
    "Request",
    "Rule",
    "Run",
    "Sampling",
    "Step",
    "TokenLogprob",
    "TokenScores",
    "TokenView",
    "Trace",
    "Usage",
    "Verdict",
    "Waiver",
    "needs_processing",
    "processes_logits",
    "prompt_ids",
]
