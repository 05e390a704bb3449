"""Whether letters and digits look drawn at random: a key has no words in it, a long name has nothing else."""

import re

LEAST = 16  # letters and digits of a run: shorter ones are names more often than keys
SHARE, SOLID_SHARE = 0.4, 0.33  # of the pairs that no word would have; in a long run without a '-', '_' or '/'
SOLID = 20
KINDS = 8  # different characters that a random run has at least
RUN = re.compile(r"[A-Za-z0-9+/_=-]{16,}")
# the letters that follow each letter in 97 of 100 pairs of letters of English prose, of Python's own manual
FOLLOWING = {
    "a": "bcdgiklmnprstuvwy", "b": "aeijlouy", "c": "acehiklortu", "d": "adeilorsu", "e": "acdefgilmnpqrstvwxy",
    "f": "aefilortu", "g": "aehilnrsu", "h": "aeiot", "i": "abcdefglmnoprstvxz", "j": "aeo", "k": "aew",
    "l": "adefilopstuy", "m": "abeimopsu", "n": "acdefghilnostuv", "o": "bcdgilmnoprstuvw", "p": "aeiloprstuy",
    "q": "u", "r": "acdegimnorstuy", "s": "acehiopstuy", "t": "acehiloprstuwy", "u": "abceilmnprst", "v": "aei",
    "w": "aehino", "x": "acept", "y": "pst", "z": "aeo",
}  # fmt: skip


def random_runs(text: str) -> list[str]:
    """The runs of letters, digits and what base64 and URLs have besides that no person wrote."""
    return [run for run in RUN.findall(text) if is_random(run)]


def is_random(run: str) -> bool:
    """By pairs of neighbours: letters that do not follow one another in words, and letters beside digits."""
    letters = [c for c in run if c.isascii() and c.isalnum()]
    if len(letters) < LEAST or len(set(letters)) < KINDS:
        return False
    pairs = [(a, b) for a, b in zip(run.lower(), run.lower()[1:], strict=False) if a.isalnum() and b.isalnum()]
    pairs = [(a, b) for a, b in pairs if not (a.isdigit() and b.isdigit()) and ord(b) - ord(a) not in (0, 1)]
    unusual_count = sum(b not in FOLLOWING.get(a, "") for a, b in pairs)
    threshold = SOLID_SHARE if len(letters) == len(run) >= SOLID else SHARE
    return len(pairs) >= LEAST // 2 and unusual_count >= threshold * len(pairs)
