"""Generates conditions and records the results of Rasa's condition library, pypred, for them.

    python tests/reference_data/condition_cases.py crates/lang/tests/data

writes `condition_documents.json` (a list) and `conditions.jsonl` (lines of {"text", "document": index, "verdict"}). The seed is fixed, so
that the same version of the library gives the same files.
"""

import json
import pathlib
import random
import sys

from pypred_oracle import verdict

DOCUMENTS = [
    {
        "slots": {
            "n": 5, "f": 2.5, "zero": 0, "neg": -3, "big": 9007199254740993, "t": "hello", "digits": "5", "blank": "", "nl": "a\n",
            "upper": "HELLO", "word": "slots", "yes": True, "no": False, "unset": None, "list": ["a", "b", 1, None], "nums": [1, 2, 3],
            "none": [], "map": {"k": "v", "in": {"x": 1}, "5": 5}, "void": {}, "a-1": 7, "a:b": "c", "s;t": 1, "umlaut": "äöü", "mail": "a@b.org",
            "nested": [[1, 2], {"a": 1}], "true": 1, "é": 1,
        },
        "context": {"flow_id": "transfer", "collect": "n", "step_id": "ask", "interrupted": False, "names": ["add a contact", "x"], "reason": None},
    },
    {
        "slots": {"n": "5", "f": 5, "t": None, "digits": 5, "blank": None, "yes": "true", "no": 0, "unset": False, "list": "abc", "nums": [1.0, 2, 3],
                  "none": "", "map": [], "word": "", "upper": "hello", "zero": False, "neg": 0.0, "nested": {}, "mail": "no mail"},
        "context": {},
    },
    {"slots": {}, "context": None},
    {"slots": {"n": 1, "t": "a", "yes": 1, "no": 0.0, "list": [True], "map": {"in": "x"}, "nums": [3, "a"]}},
]

NAMES = ["n", "f", "zero", "neg", "big", "t", "digits", "blank", "nl", "upper", "word", "yes", "no", "unset", "list", "nums", "none", "map", "void",
         "umlaut", "mail", "nested", "missing"]
DOTTED = ["slots.map.k", "slots.map.in", "slots.map.in.x", "slots.map.in.x.y", "slots.map.nope", "slots.map.nope.x", "slots.t.h", "slots.t.z",
          "slots.t.", "slots.list.a", "slots.list.z", "slots.list.0", "slots.unset.x", "slots.n.x", "slots.yes.x", "slots.map.5", "slots.a-1",
          "slots.a:b", "slots.s;t", "slots.a-2", "slots.", ".slots", "slots..n", "slots.n.", "slots.true", "slots.é", "slots.map.in.", "slots.none.x"]
CONTEXT = ["context.flow_id", "context.collect", "context.interrupted", "context.names", "context.missing", "context.reason", "context.reason.x",
           "context", "context.flow_id.x", "context.names.x"]
BARE = ["n", "consent", "foo.bar", "slots", "a-b", ".5", "-", ";", "x:y", "_", "Slots.n", "slots:n", "-x"]
TEXTS = ["hello", "HELLO", "5", "", "a", "b", "x y", "transfer", "it's", "true", "null", "add a contact", "k", "in", "é", "äöü", "z", "3", "10", "#x", "("]
NUMBERS = ["0", "1", "5", "-3", "2.5", "5.0", "1.0", "9007199254740993", "9007199254740992", "-0", "0.1", "3", "100", "007", "1" + "0" * 310]
CONSTANTS = ["true", "false", "null", "undefined", "empty", "True", "FALSE", "Null", "EMPTY", "unDefined"]
PATTERNS = ["^h", "ell", "o$", "^hello$", "(?i)HELLO", "(?i:h)ello", r"^\d+$", r"\w+@\w+\.org", "[a-c]", "[^a]", "a|b", "^$", "^a$", r"a\Z", r"\bhello\b",
            "h.l+o", "(h)(e)llo", r"(l)\1", "(?P<c>l)(?P=c)", "(?=h)hel", "h(?!x)", "(?<=h)e", "(?<!x)ello", "h{1}", "l{2,3}", "l{,2}", "{", "h{",
            "[", "(", ")", "*", "a**", "l++o", "(?>l+)o", "(?x) h e l", "(?s).", "(?m)^a$", "[[]", "[]x]", "[&&]", "[a-]", r"[\w-]", r"\d-\d", r"[\d-x]",
            r"\q", r"\x68", r"\u0068", r"\150", r"\0", r"[\b]", r"[^\W]", "a(?i)b", "(?<n>a)", "(?P<n>h)(?(n)e|x)", "(?(1)a)", "()", "|", "h??e", "(?:h)*?e",
            r"\Ah", r"\z", "(?a)ä", r"(?a)\w", r"\s", r"\S", "ö", "(?i)ÄÖ", "(?#note)h", "(?<=h*)e", "h{2,1}", "(?-i:h)", "^*", "$*", "(?=h)*h", "x{0}h"]


class Maker:
    def __init__(self, seed):
        self.r = random.Random(seed)

    def pick(self, *options):
        return self.r.choice(options)

    def quoted(self, text):
        quote = self.pick('"', "'")
        if quote in text:
            quote = "'" if quote == '"' else '"'
        return f"{quote}{text}{quote}"

    def name(self):
        roll = self.r.random()
        if roll < 0.7:
            return "slots." + self.r.choice(NAMES)
        if roll < 0.8:
            return self.r.choice(DOTTED)
        if roll < 0.93:
            return self.r.choice(CONTEXT)
        return self.r.choice(BARE)

    def scalar(self):
        return self.pick(self.quoted(self.r.choice(TEXTS)), self.quoted(self.r.choice(TEXTS)), self.r.choice(NUMBERS), self.r.choice(CONSTANTS[:3] + CONSTANTS[5:8]))

    def factor(self, depth):
        roll = self.r.random()
        if roll < 0.45:
            return self.name()
        if roll < 0.75:
            return self.scalar()
        if roll < 0.87:
            return self.r.choice(CONSTANTS)
        if roll < 0.93:
            return self.set(depth)
        return self.name() if depth <= 0 else f"({self.expression(depth - 1)})"

    def set(self, depth):
        items = [self.set_item(depth) for _ in range(self.r.randrange(5))]
        return "{" + self.pick(" ", "  ", "\n").join(items) + "}"

    def set_item(self, depth):
        roll = self.r.random()
        if roll < 0.75:
            return self.scalar()
        if roll < 0.9:
            return self.name()
        if roll < 0.96:
            return f"({self.factor(0)})"
        return self.factor(depth - 1)

    def keyword(self, word):
        return self.pick(word, word, word, word.upper(), word.capitalize())

    def term(self, depth):
        roll = self.r.random()
        if roll < 0.15:
            return self.factor(depth)
        if roll < 0.6:
            operator = self.pick("=", "==", "!=", self.keyword("is"), self.keyword("is") + " " + self.keyword("not"))
        elif roll < 0.75:
            operator = self.pick("<", "<=", ">", ">=")
        elif roll < 0.87:
            left = self.set(depth) if self.r.random() < 0.45 else self.name()
            return f"{left} {self.keyword('contains')} {self.pick(self.scalar(), self.name(), self.name())}"
        else:
            pattern = self.r.choice(PATTERNS)
            right = pattern if self.r.random() < 0.1 else self.quoted(pattern)
            return f"{self.pick(self.name(), 'slots.t', 'slots.t', 'slots.nl')} {self.keyword('matches')} {right}"
        space = self.pick(" ", " ", " ", "", "\t", "\n", " # note\n") if operator[0] in "=!<>" else " "
        return f"{self.factor(depth)}{space}{operator}{space}{self.factor(depth)}"

    def expression(self, depth):
        parts = []
        for _ in range(self.pick(1, 1, 1, 2, 2, 3, 4)):
            if parts:
                parts.append(self.keyword(self.pick("and", "or")))
            for _ in range(self.pick(0, 0, 0, 1, 2) if self.r.random() < 0.5 else 0):
                parts.append(self.keyword("not"))
            nested = depth > 0 and self.r.random() < 0.2
            parts.append(f"({self.expression(depth - 1)})" if nested else self.term(depth))
        return " ".join(parts)

    def broken(self, text):
        """The condition with one random character removed or one random text inserted."""
        at = self.r.randrange(len(text) + 1)
        if self.r.random() < 0.5:
            return text[:at] + text[at + 1:]
        return text[:at] + self.pick("(", ")", "{", "}", "=", "!", ",", "'", '"', " ", "&", "-", ".", "#", "\r", "/", "not ", " and ", "1", "+", "\u00a0", "é") + text[at:]


def handwritten():
    groups = [
        # precedence
        "true or false and false", "false and true or true", "true and false or true", "false or true and false", "not true or true", "not false and false",
        "not slots.n = 5 or true", "not slots.n = 1 and slots.yes", "not not slots.yes", "not (true and false)", "slots.yes and not slots.no or slots.no",
        "true or slots.unset < 1", "slots.unset < 1 or true", "not slots.unset < 1", "false and slots.unset < 1", "true and false and true or true",
        # chained comparisons; constants without an operator
        "1 = 1 = 1", "(1 = 1) = true", "1 is not not 1", "1 is not (not 1)", "1 = not 1", "undefined", "empty", "{}", "(undefined)", "({})", "{1}", "null", "true",
        "not undefined", "not empty", "not {}", "", " ", "# only a note", "()", "slots", "context", "not", "and", "1 2", "true true",
        # equality
        "true = 1", "false = 0", "true = 1.0", '"1" = 1', "null = false", "null = undefined", "undefined = null", "undefined = empty", "empty = undefined",
        "undefined != empty", "empty != undefined", "undefined is not empty", "empty is not undefined", "undefined != undefined", "empty != empty", "null != undefined",
        "undefined != null", '"" = empty', 'empty = ""', '"" != empty', "empty != ''", "null = empty", "0 = empty", "false = empty", "{} = empty", "{} = {}",
        "{1} = {true}", "{1 true} = {1}", "{'a'} = slots.list", "{foo} = {bar}", "{foo bar} = {baz}", "slots.list = slots.list", "slots = slots", "slots = context",
        "slots is empty", "slots = undefined", "context = slots", "context is empty", "slots.nums = slots.nums", "slots.void = {}", "slots.none = {}", "slots.none is empty",
        "slots.big = 9007199254740993", "slots.big > 9007199254740992", "slots.missing is undefined", "slots.unset is undefined", "slots.unset is null",
        "slots.missing is null", "slots.unset is empty", "slots.missing is empty", "slots.blank is empty", "slots.missing = foo", "slots.t = hello", "foo = foo",
        # order
        "1 < 2", "'a' < 'b'", "'B' < 'a'", "'10' < '9'", "'ä' > 'z'", "'\U0001f600' > '\uffee'", "'a' < 1", "1 < 'a'", "null < 1", "1 < null", "null < null",
        "undefined < 1", "1 < undefined", "empty >= empty", "true < 2", "false < true", "{1} < {1 2}", "{1 2} <= {2 1}", "{1 2} > {1}", "{1} >= {2}", "{1} < 1",
        "slots.list < slots.list", "slots.nums < slots.nums", "slots.nums >= slots.none", "slots.map < slots.map", "slots < slots", "slots.nested > slots.nums",
        "slots.list > slots.nums", "slots.nums <= slots.list", "{} < {1}", "slots.none < slots.nums", "slots.list < {1}", "undefined < null", "slots < undefined",
        # contains
        "{'a' 'b'} contains 'a'", "{1 2} contains 1.0", "{1} contains true", "{true} contains 1", "{null} contains null", "{foo} contains bar", "{foo} contains null",
        "{''} contains foo", "{undefined} contains foo", "{empty} contains ''", "{} contains 1", "{(1)} contains 1", "{(a = b)} contains 1", "{{1}} contains 1",
        "{({1})} contains 1", "{(1 = 1)} contains true", "{slots.list} contains 1", "{slots.map} contains 1", "{1} contains slots.list", "{1} contains slots.map",
        "slots.list contains 1", "slots.list contains true", "slots.list contains null", "slots.list contains foo", "slots.list contains slots.list",
        "slots.nested contains slots.nums", "slots.t contains 'ell'", "slots.t contains ''", "slots.t contains 5", "slots.t contains null", "slots.t contains foo",
        "slots.map contains 'k'", "slots.map contains 5", "slots.map contains '5'", "slots.map contains slots.list", "slots contains 'n'", "slots contains 'missing'",
        "slots contains slots.list", "slots contains 5", "slots.unset contains 1", "slots.n contains slots.t.h", "slots.missing contains 1",
        "slots.missing contains slots.unset.x", "empty contains slots.unset.x", "empty contains 1", "undefined contains 1", "'abc' contains 'b'", "1 contains 1",
        "slots.t contains {1}", "slots.t contains undefined", "slots.t contains empty", "slots.t contains (1)", "slots.t contains ('e')", "slots.t contains (1 = 1)",
        "{1 contains 1}", "{(1 contains {2})} = 1", "true or {(1 contains {2})}", "true or {(a matches '[')}", "true or {(a matches 5)}", "true or (a matches '[')",
        "{not 1} contains 1", "{1, 2} contains 1", "{1;2} contains 1", "{'a''b'} contains 'b'", "{1-2} contains -2", "(1 = 1) contains 1", "{true} contains (true)",
        "context.names contains 'add a contact'", "context.names contains slots.missing", "{1", "{1 )", "{ ( 1 } )", "({1 2}) contains 2",
        # matches
        "slots.t matches hello", "slots.t matches slots.t", "slots.t matches 'hello'", "slots.t matches \"'hello'\"", "slots.t matches '\"hello'", "slots.t matches 5",
        "slots.t matches true", "slots.t matches null", "slots.t matches undefined", "slots.t matches ('ell')", "slots.t matches (ell)", "slots.t matches (1 = 1)",
        "slots.t matches {1}", "slots.t matches ''", "slots.t matches", "slots.n matches '5'", "slots.digits matches '5'", "slots.missing matches '.'", "'x' matches 'x'",
        "slots.unset matches '.'", "(1 = 1) matches '.'", "{1} matches '.'", "slots.nl matches 'a$'", "slots.nl matches '^a\\Z'", "slots.nl matches 'a.'", "slots.nl matches '(?s)a.'",
        # identifiers, numbers, keywords, comments
        "2nd", "1.", ".5 = 1", "5.5.5", "-", "-a", "--1", "1-1", "1 -1", "slots.a-1 = 7", "slots.a -1", "slots.a:b = 'c'", "slots.s;t = 1", "slots.a- 1", "IS", "Is = is",
        "1 IS NOT 2", "1 Is 1", "TRUE AND tRuE", "not(true)", "not(false)and(true)", "(true)or(false)", "true and(false)", "1=1", "1==1", "1===1", "1!=2", "1! =2", "1<>2", "1=<2",
        "1=>2", "1> =2", "1>=2and true", "true# note", "true # note\nand false", "true #", "#note\ntrue", "slots.t#x\n = 'hello'", "'#' = '#'", "'a\nb' = 'a'", "'a\n' = slots.nl",
        "true\tand\ttrue", "true\rand true", "true\r\n", "true\u00a0and true", "true\n\n", "\ntrue", "true\x0b", "slots.t = 'hello", "slots.t = \"hello'", "\"it's\" = 'it'",
        "'a' 'b'", "slots.é = 1", "\u00b2 = 1", "a\u0301 = 1", "\u0663 = 3", "-\u0663.\u0665 = -3.5", "\u0663a", "\u2460 = 1", "slots.\u4e00 = 1", "\u4e00 = 一", "true and", "and true",
        "or", "true not", "true not true", "true and or false", "(true", "true)", "((true)", "(true))", "slots.t is", "is 1", "= 1", "1 contains", "contains 1", "matches 'a'",
        "a, b", "a && b", "a || b", "!a", "a + b", "a * 2", "[1]", "$x", "@x", "a/b", "/a/", "true,", "\\", "`a`", "~a", "slots['n'] = 5", "null is null is null", "slots.n is  not\n5",
        "slots.n is # x\n not 5", "slots.true = 1", "slots.Null is undefined", "true.x", "true-x = 1", "not.x", "null:", "trUe = true", "context.is = 1", "slots.is not null",
    ]
    # Segue differs from pypred here on purpose; crates/lang/tests/conditions.rs gives the reasons
    groups += ["slots.t matches /^HEL/i", "slots.t matches /l+o/", "(" * 40 + "true" + ")" * 40, "'a\u0301' matches 'a\\b'"]
    groups += DOTTED + CONTEXT + BARE + NUMBERS + CONSTANTS
    groups += [f"slots.{name} = slots.{other}" for name in NAMES for other in NAMES if name <= other]
    groups += [f"{subject} matches {Maker(0).quoted(pattern)}" for pattern in PATTERNS for subject in ("slots.t", "slots.nl", "slots.umlaut", "'a-1 \\ x'")]
    groups += ["(" * 20 + "true" + ")" * 20, "not " * 25 + "true", " and ".join(["true"] * 60), " or ".join(["false"] * 60 + ["slots.yes"])]
    return groups


def cases():
    for text in handwritten():
        for document in range(2):
            yield text, document
    for document in (2, 3):
        for text in handwritten()[:420]:
            yield text, document
    maker = Maker(20240229)
    for _ in range(2600):
        yield maker.expression(2), maker.r.choice([0, 0, 0, 0, 1, 1, 2, 3])
    for _ in range(700):
        yield maker.broken(maker.expression(1)), maker.pick(0, 1)


def main(folder):
    seen = set()
    lines = []
    for text, document in cases():
        # Rasa renders templates before it evaluates a condition, so a text with template syntax never reaches the library.
        if (text, document) in seen or any(mark in text for mark in ("{{", "{%", "{#")) and text != "{{1}} contains 1":
            continue
        seen.add((text, document))
        answer, _ = verdict(text, DOCUMENTS[document])
        lines.append(json.dumps({"text": text, "document": document, "verdict": answer}, ensure_ascii=False))
    folder = pathlib.Path(folder)
    (folder / "conditions.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    documents = ",\n".join(json.dumps(document, ensure_ascii=False) for document in DOCUMENTS)
    (folder / "condition_documents.json").write_text(f"[\n{documents}\n]\n", encoding="utf-8")
    print(len(lines), "cases", file=sys.stderr)


if __name__ == "__main__":
    main(*sys.argv[1:])
