"""Text for a snapshot: `assert shown(text) == snapshot`. What differs between two runs becomes a word in brackets."""

import re
import tempfile
from pathlib import Path

CPUINFO = Path("/proc/cpuinfo")
MODELS = re.findall(r"^model name\s*: (.+)$", CPUINFO.read_text(), re.M) if CPUINFO.exists() else []
FOLDER = r"(?<![\w.~/<>-])/(?:[\w.@+=<>-]+/)+"  # absolute, of two parts or more
PLACE = r"(?:[\w.+-]*/)*"  # of an interpreter or a script, as seen from where one stands
COMMAND = (
    rf"{PLACE}\bpython[\d.]* (?:{PLACE}(?:run_)?(train|play|inspect|publish)\.py|(?:-P )?-m stride\.commands\.(\w+))"
)

# in this order: an id holds a date, a path may hold an id, a version looks like a number
RULES = [
    (r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b[@-Z\\-_]", ""),
    (COMMAND, r"stride \1\2"),  # as a wheel says it
    (r"\b\d{8}-\d{6}-[\w-]+-s\d+[\w-]*-[a-z0-9]{4}\b", "<run>"),
    (r"\b\d{8}-\d{6}-[a-z0-9]{4}\b", "<group>"),
    (rf"{FOLDER}([\w.@+=-]+\.[a-z]\w*)\b", r"<path>/\1"),  # a file's name says what is meant
    (rf"{FOLDER}[\w.@+=<>-]*|{re.escape(tempfile.gettempdir())}\b", "<path>"),
    (r"\b\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d)?(?:\.\d+)?(?:Z|[+-]\d\d:?\d\d)?)?\b", "<date>"),
    (r"\b127\.0\.0\.1:\d+\b|\blocalhost:\d+\b", "<address>"),
    (r"(?<![\w.])(?:\d+d )?(?:\d+:)?\d?\d:\d\d(?![\w:])", "<time>"),
    (r"(?<![\w.])\d+(?:\.\d+){2,}(?:[.+-]?[a-z]\w*)*\b|(?<=[Pp]ython )\d+\.\d+\b", "<version>"),
    (r"\b(?=[a-f]*\d)(?=\d*[a-f])[0-9a-f]{7,64}\b", "<hash>"),
    (r"(?<![\w.])\d[\d,.]*(?: ?k)?(?= (?:[a-z]+ )?[a-z]+/s\b)", "<rate>"),
    (r"(?<=seconds=)[\d.]+|(?<![\w.])\d[\d,]*(?:\.\d+)?(?= (?:µs|us|ms|s|min|h|seconds|minutes|hours)\b)", "<time>"),
    (r"(?<=\bprocess )\d+\b|(?<=\bpid )\d+\b", "<pid>"),
]
BESIDE = re.compile(r" {2,}(?=<[a-z]+>)|(?<=[a-z]>) {2,}")  # a column's padding depends on what stood there


def shown(text: str, *extra: tuple[str, str]) -> str:
    """`text` as a snapshot keeps it; `extra` are pairs of a pattern and its word, which go first."""
    models = [(re.escape(model), "<processor>") for model in {*MODELS}]
    for pattern, word in [*extra, *models, *RULES]:
        text = re.sub(pattern, word, text)
    lines = [BESIDE.sub(" ", line).rstrip() for line in text.splitlines()]
    return "\n".join(lines)
