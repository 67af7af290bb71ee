"""Made-up summaries and references with what splits, stems and scores differ on."""

import random

SUBJECTS = ["Mr. Hale", "Dr. Ana Ruiz", "The U.S. team", "J. K. Moore"]
SUBJECTS += ["Élodie", "The council", "A study", "“We”"]
VERBS = ["announced", "running", "has studied", "relies on"]
VERBS += ["didn't see", "generously gave", "it's", "closes"]
OBJECTS = ["two flights at 5 p.m. on Jan. 3", "a caf\u00e9 in S\u00e3o Paulo", "3.5 per cent of $1,000"]
OBJECTS += ["the organisations' relational database", "No. 10, e.g. the old house"]
OBJECTS += ["naïve “quotes” and 'others'", "天気 and погода", "e-mail: a@b.org"]
OBJECTS += ["bridges (built in 1901) and towers"]
ENDS = [".", ".", ".", "!", "?", "...", '."', ".\u201d", ")", "", " .", "?!", ";"]
GAPS = [" ", " ", " ", "\n", "\n\n", "  ", " \u2013 ", ""]
SPECIAL = [
    ("", "Nothing was said."),
    ("Nothing was said.", ""),
    ("", ""),
    ("word", "word"),
    ("Word.", "word"),
    ("no punctuation at all in here", "no punctuation here at all"),
    ("   \n ", "Only white space."),
    ("!!! ??? ...", "Marks."),
    ("天気がいいですね。", "天気がいいですね。"),
    ("a\nb\nc", "c\nb\na"),
    ("\ufffd broken \ufffd", "broken"),
    ("The cats ran. The dogs were running.", "A cat runs. Dogs run."),
]


def text(rng: random.Random, sentences: int) -> str:
    parts = (SUBJECTS, VERBS, OBJECTS)
    return "".join(
        " ".join(map(rng.choice, parts)) + rng.choice(ENDS) + rng.choice(GAPS) for _ in range(sentences)
    )


def pairs(count: int = 240) -> list[tuple[str, str]]:
    """Prediction and reference; the same ones every time."""
    rng = random.Random(5)
    made = range(count - len(SPECIAL))
    return SPECIAL + [(text(rng, rng.randrange(7)), text(rng, rng.randrange(1, 6))) for _ in made]
