"""Regular expressions that recognise secrets (tokens, keys, passwords) and names of variables that hold secrets.

Publishing a run uses them, so that no secret is uploaded. The forms follow what the services publish about their
tokens. A library such as detect-secrets is not used: it reads source code line by line, and does not know paths,
addresses and the secrets of this machine; each form that it knows is one line here. `publishing/random_text.py` finds
secrets without a form.
"""

import netrc
import re
from collections.abc import Iterable

# names of variables: DB_PASS has the words DB and PASS
NAME_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
SECRET_PARTS = {
    "token", "tokens", "key", "keys", "secret", "secrets", "pass", "passwd", "password", "passwords", "passphrase",
    "passcode", "pw", "pwd", "pat", "jwt", "auth", "bearer", "cookie", "cookies", "cred", "creds", "credential",
    "credentials", "private", "webhook", "webhooks", "dsn", "salt", "otp", "totp", "pin", "sas", "signature", "apikey",
    "hook", "seedphrase", "mnemonic",
}  # fmt: skip
SECRET_ENDS = ("token", "key", "secret", "password", "passwd", "pass", "pwd", "webhook", "credentials")
SECRET_NAMES = re.compile(r"DATABASE_URL|_URI$|CONNECTION|CONN_STR", re.IGNORECASE)
PLAIN_NAMES = {"PWD", "OLDPWD"}  # no secrets: the working folder
PLAIN_VALUES = {"true", "false", "yes", "none", "null", "auto", "default", "disabled", "enabled", "user", "test"}

UUID = r"[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}"
QUOTED = r"[\"'`]?"
OF_KEYS = r"api|access|auth|account|private|client|secret|sharedaccess|subscription|signing|encryption"
NAMED = rf"pass(?:wor[dt]|wd|phrase|code)?|pwd|secret|credentials?|(?:{OF_KEYS})[ _.-]?(?:key|token|secret|code|id)|" \
        r"token|bearer|otp|pin|cookie|session[ _.-]?(?:id|key)|aws_\w+|authorization|sig|signature"  # fmt: skip
STRONG = r"pass(?:wor[dt]|wd|phrase|code)|pwd|passwort"
VALUE = r"(?=[^\s\"'`,;]*[0-9!$%&*?@^~+/_=-])[^\s\"'`,;]{5,}"  # with a digit or sign, so no word

FORMS: tuple[tuple[str, str], ...] = (  # (what it is, for messages; regular expression)
    # code hosts and packages
    ("GitHub token", r"(?i)gh[pousr]_[a-z0-9]{16,}|github_pat_[a-z0-9_]{16,}"),
    ("GitLab token", r"gl(?:pat|ptt|dt|rt|cbt|ft|soat|imt|agent|oas)-[A-Za-z0-9_-]{16,}|GR1348941[A-Za-z0-9_-]{16,}"),
    ("Hugging Face token", r"(?i)(?:hf|api_org)_[a-z0-9]{12,}"),
    ("npm token", r"(?i)npm_[a-z0-9]{20,}"),
    ("PyPI token", r"(?i)pypi-[a-z0-9_-]{16,}"),
    ("RubyGems token", r"rubygems_[0-9a-f]{32,}"),
    ("crates.io token", r"\bcio[A-Za-z0-9]{32}\b"),
    ("NuGet key", r"\boy2[a-z0-9]{43}\b"),
    ("Docker token", r"dckr_(?:pat|oat)_[A-Za-z0-9_-]{16,}"),
    ("Artifactory key", r"\bAKC[a-z][A-Za-z0-9]{30,}"),
    ("Bitbucket or Atlassian token", r"\bAT(?:ATT3|CTT3|BB)[A-Za-z0-9_=-]{16,}"),
    ("Postman key", r"PMAK-[A-Za-z0-9-]{20,}"),
    ("Read the Docs or Linear token", r"(?:rtd|lin_api|lin_oauth)_[A-Za-z0-9]{16,}"),
    # models and experiments
    ("OpenAI or Anthropic key", r"(?i)(?<![a-z0-9])sk-(?=[\w-]*\d)[\w-]{16,}"),
    ("Weights & Biases key", r"wandb_v\d+_\w{16,}"),
    ("Replicate key", r"\br8_[A-Za-z0-9]{20,}"),
    ("Groq, Perplexity or xAI key", r"gsk_[A-Za-z0-9]{20,}|(?:pplx|xai)-[A-Za-z0-9]{20,}"),
    ("Kaggle token", r"KGAT_[A-Za-z0-9]{16,}|\"?username\"?\s*:\s*\"?\w+\"?\s*,\s*\"?key\"?\s*:"),
    ("Databricks token", r"\bdapi[0-9a-f]{32}"),
    # clouds
    ("AWS key id", r"(?:AKIA|ASIA|ABIA|ACCA|AROA|AIDA|AGPA|ANPA|ANVA)(?=[A-Z]*\d)[A-Z0-9]{16}"),
    ("AWS MWS key", r"amzn\.mws\.[0-9a-f-]{30,}"),
    ("Google key", r"AIza[A-Za-z0-9_-]{30,}|ya29\.[\w-]{16,}|GOCSPX-[\w-]{16,}|\b1//0[\w-]{20,}"),
    ("Google client", r"\b\d+-\w{20,}\.apps\.googleusercontent\.com"),
    ("Azure secret", r"(?i)(?:AccountKey|SharedAccessKey|SharedAccessSignature)\s*=|[\w~.]{3}\dQ~[\w~.-]{30,}"),
    ("DigitalOcean token", r"do[opr]_v1_[0-9a-f]{16,}"),
    ("Heroku, Fly, Netlify, Vercel or Supabase token",
     r"HRKU-[\w-]{20,}|\bfo1_[\w-]{20,}|FlyV1 \S{20,}|nfp_\w{20,}|\bvc[pkrai]_\w{20,}|sbp_[0-9a-f]{30,}"),
    ("PlanetScale, Pulumi or Terraform token",
     r"pscale_(?:tkn|pw|oauth)_[\w.-]{16,}|\bpul-[0-9a-f]{32,}|\w{14}\.atlasv1\.[\w-]{30,}"),
    ("Vault, Doppler or 1Password token",
     r"\bhv[sbr]\.[\w-]{20,}|\bdp\.(?:pt|st|ct|sa|scim|audit)\.\w{20,}|\bops_eyJ\w{10,}|\bA3-[A-Z0-9]{6}-[A-Z0-9-]{20,}"),
    ("Tailscale or ngrok key", r"tskey-[a-z]+-\w{8,}|\bngrok_\w{16,}"),
    ("OpenShift token", r"sha256~[\w-]{30,}"),
    ("Grafana, Sentry or New Relic token",
     r"gl(?:c|sa)_[A-Za-z0-9_=+/]{20,}|sntr(?:ys|yu|ya)_\w{16,}|NRAK-[A-Z0-9]{20,}|NRJS-\w{16,}"),
    # people and money
    ("Slack token", r"(?i)xox[a-z](?:\.xox[a-z])?-[a-z0-9-]{8,}|xapp-\d-[a-z0-9-]{8,}"),
    ("web hook",
     r"(?i)hooks\.(?:slack|zapier)\.com/\S+|discord(?:app)?\.com/api/webhooks/\S+|\bwebhook\.office\.com/\S+"),
    ("Discord token", r"\b[MNO][\w-]{23,25}\.[\w-]{6}\.[\w-]{27,}"),
    ("Telegram token", r"\b\d{8,10}:[A-Za-z0-9_-]{30,}"),
    ("Stripe key", r"(?i)(?:sk|pk|rk)_(?:live|test)_[a-z0-9]{8,}|whsec_[a-z0-9+/]{16,}"),
    ("Square or Shopify token", r"\bsq0[a-z]{3}-[\w-]{16,}|\bEAAA[\w-]{40,}|shp(?:at|ca|pa|ss)_[0-9a-fA-F]{20,}"),
    ("Facebook token", r"\bEAA[A-Za-z0-9]{30,}"),
    ("Twilio, SendGrid, Mailgun, Mailchimp or Brevo key",
     r"\b(?:AC|SK)[0-9a-f]{32}\b|\bSG\.[\w-]{10,}\.[\w-]{10,}|\bkey-[0-9a-f]{32}|[0-9a-f]{32}-us\d{1,2}\b|xkeysib-[0-9a-f]{16,}"),
    ("Notion, Figma or Airtable token", r"\bsecret_\w{40,}|\bntn_\w{30,}|figd_[\w-]{20,}|\bpat\w{14}\.[0-9a-f]{30,}"),
    ("Dropbox token", r"\bsl\.[A-Za-z0-9_-]{60,}"),
    ("Plaid token", r"\baccess-(?:sandbox|development|production)-[0-9a-f-]{30,}"),
    # in general
    ("JSON web token", r"eyJ[A-Za-z0-9_-]{10,}"),
    ("private key", r"-{4,5} ?(?:BEGIN|END) [A-Z0-9 ]*-{0,5}|PuTTY-User-Key-File|AGE-SECRET-KEY-1\w+|"
     r"\bMII[A-Za-z0-9+/]{20,}|\bb3BlbnNzaC1rZXk\w*"),
    ("SSH key", r"\b(?:ssh-(?:rsa|dss|ed25519)|ecdsa-sha2-\S+|sk-ssh-\S+)\s+AAAA|\bAAAA[BCE]3N[A-Za-z0-9+/]{10,}"),
    ("URL with credentials", r"(?i)\b[a-z][a-z0-9+.-]*://[^\s/@]+@"),
    ("URL with a secret parameter",
     r"(?i)[?&](?:\w*token|\w*key|sig|signature|auth|code|\w*secret|password|pwd|x-amz-\w+|x-goog-\w+)=[^\s&]+"),
    ("password", rf"(?i)(?:{STRONG}){QUOTED}\s*[:=]+>?\s*[^\s,;]{{4,}}"),
    ("password", rf"(?i)(?:{STRONG})\s+(?:(?:is|was)\s+)?{VALUE}"),
    ("password or token of a command", r"(?i)--?(?:pass(?:word|wd)?|token|api-?key|secret)[ =]\S{4,}"),
    ("secret by its name", rf"(?i)(?<![a-z])(?:{NAMED})s?{QUOTED}\s*[:=]+>?\s*{QUOTED}{VALUE}"),
    ("bearer token", r"(?i)\bbearer\s+(?=[^\s\"']*[0-9._=/+-])[^\s\"']{8,}"),
    ("basic authorization", r"(?i)\bbasic\s+(?=[a-z0-9+/]*[0-9=+/])[a-z0-9+/]{8,}={0,2}"),
    ("login with a password", r"(?i)\blogin\s+\S+\s+password\s+\S+|\bcurl\b.*\s-u\s*\S+:\S+|\bsshpass\b.*\s-p\s*\S+"),
    ("UUID, which may be a key", UUID),
    ("hexadecimal key", r"(?<![0-9a-zA-Z])(?=[0-9]*[a-fA-F])(?=[a-fA-F]*[0-9])[0-9a-fA-F]{16,}(?![0-9a-zA-Z])"),
)  # fmt: skip
COMPILED = tuple((kind, re.compile(form)) for kind, form in FORMS)
GUESSES = {"secret by its name", "UUID, which may be a key", "hexadecimal key"}  # harmless text may match, too


def is_secret_name(name: str) -> bool:
    """Say whether a variable's name suggests a secret: DB_PASS, openaiKey, GH_PAT, but not COMPASS."""
    words = [word.lower() for word in NAME_WORDS.findall(name)]
    ends = any(word.endswith(SECRET_ENDS) and word != "monkey" for word in words)
    return name not in PLAIN_NAMES and (ends or bool(SECRET_PARTS & {*words}) or bool(SECRET_NAMES.search(name)))


def netrc_passwords() -> Iterable[str]:
    """Return the passwords in the user's ~/.netrc; [] if there is no such file or it cannot be read."""
    try:
        return [entry[2] for entry in netrc.netrc().hosts.values() if entry[2]]
    except (OSError, netrc.NetrcParseError):
        return []
