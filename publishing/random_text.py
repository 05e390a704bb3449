"""Tells whether a text looks like a random key ("x7Kq2vPz..."), in contrast to a long name, which consists of words.

It counts pairs of neighbouring letters that are rare in English words; a random key has many of them.
"""

import re

MIN_LETTERS = 16  # letters and digits; a shorter run of them is more often a name than a key
# A run is random if at least this share of its pairs is rare in words; the second one is for solid runs.
UNUSUAL_SHARE, SOLID_UNUSUAL_SHARE = 0.4, 0.33
MIN_SOLID_LETTERS = 20  # a solid run has at least so many letters and digits, and no other characters
MIN_DIFFERENT = 8  # different characters in a random run
RUN = re.compile(r"[A-Za-z0-9+/_=-]{16,}")
# letter -> the letters that usually follow it: they make up 97 of 100 pairs in English prose and in Python's manual
FOLLOWING = {
    "a": "bcdgiklmnprstuvwy", "b": "aeijlouy", "c": "acehiklortu", "d": "adeilorsu", "e": "acdefgilmnpqrstvwxy",
    "f": "aefilortu", "g": "aehilnrsu", "h": "aeiot", "i": "abcdefglmnoprstvxz", "j": "aeo", "k": "aew",
    "l": "adefilopstuy", "m": "abeimopsu", "n": "acdefghilnostuv", "o": "bcdgilmnoprstuvw", "p": "aeiloprstuy",
    "q": "u", "r": "acdegimnorstuy", "s": "acehiopstuy", "t": "acehiloprstuwy", "u": "abceilmnprst", "v": "aei",
    "w": "aehino", "x": "acept", "y": "pst", "z": "aeo",
}  # fmt: skip


def random_runs(text: str) -> list[str]:
    """Return the random-looking runs in a text; a run has letters, digits and other characters of base64 and URLs."""
    return [run for run in RUN.findall(text) if is_random(run)]


def is_random(run: str) -> bool:
    """Return whether a run looks random: many of its pairs of neighbours are rare in words, or letter beside digit.

    Pairs of digits, and of equal or successive characters (aa, ab), do not count, because names have them, too."""
    letters = [c for c in run if c.isascii() and c.isalnum()]
    if len(letters) < MIN_LETTERS or len(set(letters)) < MIN_DIFFERENT:
        return False
    pairs = [(a, b) for a, b in zip(run.lower(), run.lower()[1:], strict=False) if a.isalnum() and b.isalnum()]
    pairs = [(a, b) for a, b in pairs if not (a.isdigit() and b.isdigit()) and ord(b) - ord(a) not in (0, 1)]
    unusual_count = sum(b not in FOLLOWING.get(a, "") for a, b in pairs)
    threshold = SOLID_UNUSUAL_SHARE if len(letters) == len(run) >= MIN_SOLID_LETTERS else UNUSUAL_SHARE
    return len(pairs) >= MIN_LETTERS // 2 and unusual_count >= threshold * len(pairs)
