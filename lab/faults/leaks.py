"""Puts secrets, paths and addresses into the texts of a run: none of them may be published.

    python -m lab.faults leaks

Each form of a secret is filled with random letters (so that no file here contains a token), put into several
sentences, and scanned as run_publish.py scans a text. 101 harmless descriptions and every shipped variant must pass.
"""

import base64
import json
import random
import re
import string
from collections.abc import Iterable, Mapping
from html import escape
from pathlib import Path
from urllib.parse import quote

from lab.faults.record import Report
from stride.config.loader import environment_files, load_config, to_plain
from stride.config.raw import EnvironmentFile
from stride.publishing.facts import findings, written_texts
from stride.publishing.folder import check_nothing_left
from stride.publishing.own_secrets import find_own
from stride.publishing.scanner import scan
from stride.utils.provenance import PROJECT
from stride.utils.user_error import UserError

HARMLESS = PROJECT / "tests" / "publishing" / "harmless.txt"
LETTERS = {
    "an": string.ascii_letters + string.digits, "up": string.ascii_uppercase + string.digits, "hex": "0123456789abcdef",
    "dig": "123456789", "b64": string.ascii_letters + string.digits + "+/", "url": string.ascii_letters + string.digits,
    "low": string.ascii_lowercase,
}  # fmt: skip
SENTENCES = ("{}", "see {} for it", "log:{}", "({})", '"{}"', "x={}", "with {}, then stop", "[{}]", "a|{}|b", "#{}")

FORMS = json.loads(Path(__file__).with_suffix(".json").read_text(encoding="utf-8"))
TOLD: dict[str, list[str]] = FORMS["told"]  # found by a first attack: 32 forms of tokens, 24 paths
OURS: dict[str, list[str]] = FORMS["ours"]
VARIABLES: dict[str, str] = FORMS["variables"]  # name of a variable -> its value
TOLD_VARIABLES = 14  # the first of them are of that attack
DOORS = {  # ways to write the same secret in a file; the last check before publishing must know them all
    "as it is": lambda text: text,
    "as JSON": lambda text: json.dumps({"a": text}),
    "as JSON with its letters": lambda text: json.dumps(text, ensure_ascii=False),
    "in a cell of Markdown": lambda text: f"| {text.replace('|', chr(92) + '|').replace('<', '&lt;')} |",
    "as base64": lambda text: base64.b64encode(f"user:{text}".encode()).decode(),
    "as a part of a URL": lambda text: quote(text),
    "as HTML": escape,
    "in hex": lambda text: text.encode().hex(),
    "in capitals": str.upper,
    "as base64 of a URL": lambda text: base64.urlsafe_b64encode(f"a:{text}:b".encode()).decode(),
}  # fmt: skip
VALUES = ("swordfish-swordfish", 'quo"ted-and|piped<too', "schlüssel-für-alle-türen")


def filled(form: str, draw: random.Random) -> str:
    """Return the form with random letters: <an34> becomes 34 letters and digits."""
    kinds = "|".join(sorted(LETTERS, key=len, reverse=True))
    pattern = rf"<(b64|{kinds})(\d+)>"
    return re.sub(pattern, lambda m: "".join(draw.choices(LETTERS[m[1]], k=int(m[2]))), form)


def passed(form: str, draw: random.Random, fills: int) -> tuple[int, list[str]]:
    """Return how many texts with this form were scanned, and those in which nothing was found."""
    texts = [sentence.format(filled(form, draw)) for _ in range(fills) for sentence in SENTENCES]
    return len(texts), [text for text in texts if not scan("description", text, ())]


def passed_variables(variables: Mapping[str, str]) -> list[str]:
    """Return the environment variables whose value is not recognised in a text."""
    own = find_own(environment=variables)
    secrets = {name: value.split(":")[2].split("@")[0] if "@" in value else value for name, value in variables.items()}
    kinds = {
        name: [found.kind for found in scan("description", f"with {value} in it", own)]
        for name, value in secrets.items()
    }
    return [name for name in kinds if not any(kind.startswith("the value of $") for kind in kinds[name])]


def passed_doors() -> Iterable[str]:
    """Yield the spellings of a secret for which a file is not refused."""
    for value in VALUES:
        own = find_own(environment={"SOME_TOKEN": value})
        for name, spell in DOORS.items():
            try:
                check_nothing_left({"README.md": spell(value).encode()}, own)
            except UserError:
                continue
            yield f"{value} {name}"


def refused_variants() -> tuple[int, list[str]]:
    """Return the number of shipped variants, and false findings in their texts."""
    own, count, problems = find_own(environment={}), 0, []
    for env_id, path in environment_files().items():
        for variant in EnvironmentFile.read(path).variants:
            config = to_plain(load_config(env_id, variant))
            facts = {"env_id": config["env_id"], "variant": variant, "config": config}
            problems += [f"{env_id}:{variant} {finding}" for finding in findings(written_texts(facts), own)]
            count += 1
    return count, problems


def refused_harmless(file: Path = HARMLESS) -> tuple[int, list[str]]:
    """Return the number of harmless texts, and false findings in them."""
    texts = file.read_text().splitlines()
    return len(texts), [f"{text}: {found}" for text in texts for found in scan("description", text, ())]


def run(counts: dict[str, int], draw: random.Random, folder: Path) -> Report:
    parts: list[tuple[str, int, list[str]]] = []  # (what is counted, how many, those that are wrong)
    for name, forms in {**TOLD, **OURS}.items():
        results = [passed(form, draw, counts["fills"]) for form in forms]
        unnoticed = [text for _, texts in results for text in texts]
        count = sum(number for number, _ in results)
        parts.append((f"texts were not noticed: {len(forms)} forms of {name}", count, unnoticed))
    parts += [
        (
            f"values of variables were not noticed: the first {TOLD_VARIABLES} are of the attack",
            len(VARIABLES),
            passed_variables(VARIABLES),
        ),
        (f"spellings were not noticed at the end: {', '.join(DOORS)}", len(DOORS) * len(VALUES), [*passed_doors()]),
        # false findings are faults, too
        ("shipped variants were refused", *refused_variants()),
        ("harmless descriptions, written before the scanner was, were refused", *refused_harmless()),
    ]
    leaks = [f"{what}: {text!r}" for what, _, texts in parts for text in texts]
    return [f"**{len(texts)} of {count:,}** {what}" for what, count, texts in parts] + leaks[:40], not leaks
