"""Secrets, paths and addresses in the texts of a run, and what of them would be published.

    python -m lab.faults leaks

Each form is filled with letters drawn by the seed (so that this file holds no token), put into sentences of several
kinds, and read as run_publish.py reads a text; 101 harmless descriptions and every shipped variant must pass unharmed.
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

from stride.config.loader import environment_files, load_config, to_plain
from stride.config.variants import EnvironmentFile
from stride.publishing.facts import findings, written_texts
from stride.publishing.folder import check_nothing_left
from stride.publishing.own_secrets import Own, find_own
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

TOLD = {  # of the attack that found the leaks: 32 forms of tokens and the like, 24 paths
    "tokens, told": (
        "hf_<an34>", "wandb_v1_<an40>", "ghp_<an36>", "github_pat_<an22>_<an59>", "glpat-<an20>", "sk-<an48>",
        "sk-proj-<an20>_<an20>", "sk-ant-api03-<an40>", "AKIA<up15>7", "file:///home/alice/x", "gho_<an36>",
        "ghs_<an36>", "ghr_<an36>", "sk_live_<an24>", "xoxb-<dig11>-<dig11>-<an24>", "AIza<an35>", "ASIA<up15>3",
        "<b6440>", "eyJ<an18>.eyJ<an40>.<an43>", "npm_<an36>", "pypi-AgEIcHlwaS5vcmc<an60>",
        "-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNzaC1rZXktdjEA<an40>\n-----END OPENSSH PRIVATE KEY-----",
        "https://bob:hunter2@example.org/x", "Bearer <an20>.<an8>", "password=hunter2", "AccountKey=<b6440>==",
        "<dig9>:AA<an33>", "dop_v1_<hex64>", "alice@example.org", "10.<dig1>.<dig1>.17", "xhf_<an34>", "HF_<up34>",
    ),
    "paths, told": (
        "PATH=/usr/bin:/home/alice/bin", "log:/home/alice/secret/file.txt", "/home/alice/My Files/x.txt",
        "/home/alice/100%/x", "/home/alice/#1/x", "/home/alice/[a]/x", "C:/Users/bob", "\\\\server\\share\\bob",
        "~alice/x", "../alice/x", "*/home/alice/x", "/home/alice", "C:\\Users\\bob\\x", "~/x", "/root/.ssh/id_rsa",
        "/Users/alice/x", "/mnt/c/Users/bob", "D:\\data\\x", "\\\\?\\C:\\Users\\bob", "/tmp/run-1", "/etc/passwd",
        "/var/log/x.log", "/work/alice/x", "file:/home/alice/x",
    ),
}  # fmt: skip
OURS = {
    "tokens, ours": (
        "api_org_<an34>", "glptt-<hex40>", "gldt-<an20>", "GR1348941<an20>", "ghu_<an36>", "rubygems_<hex48>",
        "cio<an32>", "oy2<low43>", "dckr_pat_<an27>", "ATATT3<an60>", "ATBB<an32>", "PMAK-<hex24>-<hex34>",
        "lin_api_<an40>", "r8_<an37>", "gsk_<an52>", "pplx-<an48>", "xai-<an80>", "dapi<hex32>", "ya29.<an60>",
        "GOCSPX-<an28>", "<dig12>-<low32>.apps.googleusercontent.com", "<an3>8Q~<an34>", "SharedAccessKey=<b6443>=",
        "doo_v1_<hex64>", "HRKU-<an36>", "nfp_<an36>", "sbp_<hex40>", "pscale_tkn_<an43>", "pul-<hex40>",
        "<an14>.atlasv1.<an60>", "hvs.<an24>", "dp.pt.<an43>", "tskey-auth-<an12>-<an32>", "sha256~<an43>",
        "glsa_<an32>_<hex8>", "sntrys_<an40>", "NRAK-<up27>", "xoxe.xoxp-1-<an60>", "xapp-1-A<up10>-<dig13>-<hex64>",
        "https://hooks.slack.com/services/T<up8>/B<up8>/<an24>", "https://discord.com/api/webhooks/<dig18>/<an68>",
        "M<an23>.<an6>.<an38>", "rk_test_<an24>", "whsec_<an32>", "sq0atp-<an22>", "shpat_<hex32>", "EAA<an80>",
        "SK<hex32>", "SG.<an22>.<an43>", "key-<hex32>", "<hex32>-us12", "xkeysib-<hex64>-<an16>", "ntn_<an46>",
        "pat<an14>.<hex64>", "eyJ<an60>", "-----BEGIN RSA PRIVATE KEY-----", "MIIEpAIBAAKCAQEA<an60>",
        "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAI<an43>", "AGE-SECRET-KEY-1<up58>", "postgres://u:<an12>@db.example.org/x",
        "redis://:<an12>@cache:6379", "https://example.org/x?access_token=<an20>", "https://example.org/a?sig=<an40>%3D",
        "password: hunter2", "the password is hunter2!", "DB_PASSWORD=swordfish", "api_key: '<an24>'",
        "login alice password swordfish", "curl -u alice:swordfish https://example.org", "--token <an16>",
        "<hex8>-<hex4>-<hex4>-<hex4>-<hex12>", "<hex40>", "<an32>", "<b6464>", "Basic YWxpY2U6aHVudGVyMg==",
        "ｈｆ_<an34>", "h\u200bf_<an34>", "hf&#95;<an34>", "hf%5F<an34>",
    ),
    "places, ours": (
        "/Volumes/alice/x", "/opt/alice/x", "/scratch/alice/x", "/gpfs/alice/x", "/private/var/folders/x",
        "/data/alice",
        "/cygdrive/c/Users/bob", "/c/Users/bob", "c:\\\\Users\\\\bob", "\\Users\\bob\\x", "Users\\bob\\AppData\\x",
        "home/alice/x", "%2Fhome%2Falice%2Fx", "\\/home\\/alice\\/x", "${HOME}/x", "%USERPROFILE%\\x",
        "smb://server/share", "//server/share/x", "alice@deepthought:x", "ssh alice@deepthought", "deepthought.local",
        "db1.internal", "alice at example dot org", "alice (at) example (dot) org", "alice.smith+x@mail.example.co.uk",
        "192.168.1.20:8080", "fe80::1ff:fe23:4567:890a", "2001:db8:0:1:1:1:1:1", "00:1a:2b:3c:4d:5e", "..\\alice\\x",
        "file:///C:/Users/bob/x", "git+ssh://git@example.org/x", "sftp://deepthought/x", "~\\x",
    ),
}  # fmt: skip
VARIABLES = {  # name of a variable -> its value; the first fourteen were told
    "DB_PASS": "correct horse", "AWS_ACCESS_KEY_ID": "wonderful-id", "OPENAI_KEY": "plain-openai-key",
    "SLACK_WEBHOOK": "slack-hook-value", "DATABASE_URL": "postgres:mine-alone", "GH_PAT": "my-own-pat-value",
    "SSH_PRIVATE": "private-words-here", "BASIC_AUTH": "alice-and-hunter", "JWT": "json-web-thing",
    "COOKIE": "chocolate-chip", "API_TOKEN": "short7!", "HF_TOKEN": "hub-token-value", "WANDB_API_KEY": "wandb-value-x",
    "MY_SECRET": "swordfish-swordfish",
    "mysqlPassword": "sesame-open", "REDIS_PW": "pw-of-redis", "MYSQL_PWD": "pw-of-mysql",
    "SENTRY_DSN": "dsn-of-sentry",
    "PASSPHRASE": "four-words-in-a-row", "APIKEY": "no-underscore", "SIGNING_SALT": "grain-of-salt",
    "TOTP": "six-digits",
    "SERVICE_CREDS": "creds-of-service", "SESSION_COOKIES": "oat-and-raisin", "FOO": "kX9vQz2mPw7RtYbL4sHd",
    "BAR_URL": "https://bob:s3same-street@example.org/", "AZURE_STORAGE_CONNECTION_STRING": "endpoint-and-more",
    "PIN": "4071", "STRIPE_SECRETS": "stripe-and-dots", "ACCESSTOKEN": "run-together",
}  # fmt: skip
TOLD_VARIABLES = 14
DOORS = {  # how the same value may stand in a file: the last door knows them all
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
    """<an34> becomes 34 letters and digits."""
    kinds = "|".join(sorted(LETTERS, key=len, reverse=True))
    pattern = rf"<(b64|{kinds})(\d+)>"
    return re.sub(pattern, lambda m: "".join(draw.choices(LETTERS[m[1]], k=int(m[2]))), form)


def passed(form: str, draw: random.Random, fills: int) -> tuple[int, list[str]]:
    """How often a form was tried, and the texts in which nothing was found."""
    texts = [sentence.format(filled(form, draw)) for _ in range(fills) for sentence in SENTENCES]
    return len(texts), [text for text in texts if not scan("description", text, ())]


def passed_variables(variables: Mapping[str, str]) -> list[str]:
    """Names whose value is not found in a text, wherever it stands there."""
    own = find_own(environment=variables)
    secrets = {name: value.split(":")[2].split("@")[0] if "@" in value else value for name, value in variables.items()}
    return [name for name, value in secrets.items() if not mine(f"with {value} in it", own)]


def mine(text: str, own: list[Own]) -> bool:
    return any(found.kind.startswith("the value of $") for found in scan("description", text, own))


def passed_doors() -> Iterable[str]:
    """Spellings of a secret that no file is refused for."""
    for value in VALUES:
        own = find_own(environment={"SOME_TOKEN": value})
        for name, spell in DOORS.items():
            try:
                check_nothing_left({"README.md": spell(value).encode()}, own)
            except UserError:
                continue
            yield f"{value} {name}"


def refused_variants() -> tuple[int, list[str]]:
    """How many shipped variants there are, and what is found in their texts."""
    own, count, found = find_own(environment={}), 0, []
    for env_id, path in environment_files().items():
        for variant in EnvironmentFile.read(path).variants:
            config = to_plain(load_config(env_id, variant))
            facts = {"env_id": config["env_id"], "variant": variant, "config": config}
            found += [f"{env_id}:{variant} {each}" for each in findings(written_texts(facts), own)]
            count += 1
    return count, found


def refused_harmless(file: Path = HARMLESS) -> tuple[int, list[str]]:
    texts = file.read_text().splitlines()
    return len(texts), [f"{text}: {found}" for text in texts for found in scan("description", text, ())]


def run(counts: dict[str, int], draw: random.Random, folder: Path) -> tuple[list[str], bool]:
    lines: list[str] = []
    leaks: list[str] = []
    for name, forms in {**TOLD, **OURS}.items():
        results = [passed(form, draw, counts["fills"]) for form in forms]
        through = [f"{name}: {text!r}" for _, texts in results for text in texts]
        tried = sum(texts for texts, _ in results)
        lines.append(f"**{len(through)} of {tried:,}** texts passed: {len(forms)} forms of {name}")
        leaks += through
    hidden, doors = passed_variables(VARIABLES), list(passed_doors())
    ours = len(VARIABLES) - TOLD_VARIABLES
    lines.append(
        f"**{len(hidden)} of {len(VARIABLES)}** values of variables passed: {TOLD_VARIABLES} told, {ours} ours"
    )
    lines.append(f"**{len(doors)} of {len(DOORS) * len(VALUES)}** spellings passed the last door: {', '.join(DOORS)}")
    leaks += [f"variable {name}" for name in hidden] + [f"last door: {door}" for door in doors]
    for what, (count, refused) in {
        "shipped variants": refused_variants(),
        "harmless descriptions, written before the scanner,": refused_harmless(),
    }.items():
        lines.append(f"**{len(refused)} of {count}** {what} were refused")
        leaks += refused  # to refuse what is harmless is a fault, too
    return lines + leaks[:40], not leaks
