"""Words after a number that name what it counts or measures, and do not change the number.

The sandbox runs this file as text, before the strict rules for mathematics, so it imports nothing.
"""

MEASURES = {
    name: unit
    for unit, names in {
        "mm": "mm millimeter millimetre", "cm": "cm centimeter centimetre", "m": "m meter metre",
        "km": "km kilometer kilometre", "in": "in inch inche",
        "ft": "ft foot feet", "yd": "yd yard",
        "mi": "mi mile", "s": "s sec second", "min": "min minute", "h": "h hr hour", "day": "day",
        "week": "week", "month": "month", "year": "year", "g": "g gram", "kg": "kg kilogram",
        "l": "l liter litre", "ml": "ml milliliter millilitre",
        "gal": "gal gallon", "oz": "ounce oz", "lb": "lb pound", "$": "dollar usd", "c": "cent", "€": "euro",
        "unit": "unit", "°": "degree deg", "rad": "rad radian", "mph": "mph",
    }.items()
    for name in names.split()
}  # fmt: skip
_COUNTED_TEXT = """
    way pair triple triplet quadruple tuple integer number people person student child children boy girl
    men man women woman player team game match matche set subset sequence permutation arrangement
    combination solution point line segment triangle square rectangle circle polygon vertice vertex edge
    face path route step move coin ball marble card tile block cube book seat table color colour letter
    digit word string divisor factor multiple prime term value element case possibilitie outcome choice
    root region piece room house car ticket page question problem apple handshake function polynomial
    matrice coloring colouring partition committee group row column cell diagonal chord arc side time
    zero
"""
COUNTED = frozenset(_COUNTED_TEXT.split())
_ADJECTIVES_TEXT = """
    square cubic sq cu ordered unordered distinct different positive nonnegative such possible total
    valid unique integer real complex lattice prime even odd whole full good
"""
ADJECTIVES = frozenset(_ADJECTIVES_TEXT.split())


def is_unit(text: str) -> bool:
    """Whether words are a unit: "square cm", "ordered pairs", "miles per hour"."""
    words = text.lower().replace(".", " ").replace("~", " ").replace("^2", "").replace("^3", "").split()
    if "per" in words[1:]:
        place = words.index("per")
        return is_unit(" ".join(words[:place])) and is_unit(" ".join(words[place + 1 :]))
    while len(words) > 1 and words[0] in ADJECTIVES:
        words = words[1:]
    return len(words) == 1 and any(
        words[0] in names or words[0].removesuffix("s") in names for names in (MEASURES, COUNTED)
    )
