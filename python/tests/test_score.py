"""hinge score against the sacrebleu package, on made-up text and on what a model translates: the same scores to the last bits, the same signature
but for the version."""

import json
import random
import subprocess

import pytest
from command import HINGE, needs_hinge

sacrebleu = pytest.importorskip("sacrebleu")

pytestmark = needs_hinge

REFERENCES = [
    "Zwei junge weiße Männer sind im Freien in der Nähe vieler Büsche.",
    "Ein Mann mit einem orangefarbenen Hut, der etwas anstarrt.",
    "In den Niederlanden heißt es: vorbeugen ist besser als heilen.",
    "The vote will take place today at 11.30 a.m., or at 3,000,000 to 1 odds.",
    "Prices rose by 3.5%, from $1,234.56 to $1,277.77 (a record-high in 1990-1995)!",
    "He said: &quot;AT&amp;T &lt;b&gt;is&lt;/b&gt; big&quot;, and left <skipped> then.",
    "„Öffnen“ … »Speichern« – ‚Schließen‘ — “quoted” text’s end",
    "日本語のテキスト、テスト。 한국어 텍스트 ελληνικά ΟΔΟΣ İstanbul ẞ",
    "emoji 😀😀 👍🏽 and a\u00a0no-break\u2009thin\u3000wide space\u200bzero",
    "10-15 a-b 1-2-3 -5 x-1 ... ,,, .5 5. ,5 5, .,. 1.,2 word.word word,word",
    "[a] {b} (c) <d> |e| ~f~ `g` ^h^ _i_ @j #k $l %m &n *o +p =q ;r :s ?t !u \"v\" 'w' /x\\y",
    "The cat's whiskers don't won't 'tis the U.S.A. and e.g. Dr. Smith's",
    "a",
    "I voted in favour of the appointment of Mrs Meglena Kuneva, the Bulgarian Commissioner designate.",
    "Please rise, then, for this minute' s silence.",
    "tab\tseparated\x0bvertical\x1cfile\x85next line",
    "   leading and trailing   ",
    "One reference that has many many many repeated repeated words words words words",
]


def disturbed(line, generator):
    """A hypothesis: words dropped, doubled, moved, changed in case or ending."""
    words = line.split(" ")
    result = []
    for word in words:
        chance = generator.random()
        if chance < 0.08:
            continue
        if chance < 0.14:
            result.append(word)
        if chance < 0.2:
            word = word.swapcase()
        if chance < 0.26:
            word = word + generator.choice([".", ",", "s", "-", "!", "…", "ß"])
        result.append(word)
    if generator.random() < 0.3 and len(result) > 2:
        i = generator.randrange(len(result) - 1)
        result[i], result[i + 1] = result[i + 1], result[i]
    return " ".join(result)


def hinge_scores(folder, hypotheses, references, *arguments):
    hyp, ref = folder / "hyp.txt", folder / "ref.txt"
    hyp.write_bytes("".join(line + "\n" for line in hypotheses).encode())
    ref.write_bytes("".join(line + "\n" for line in references).encode())
    run = subprocess.run([HINGE, "score", hyp, ref, "--metric", "bleu,chrf,chrf++", "--json", *arguments], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout)


def sacre_scores(hypotheses, references, lowercase=False):
    metrics = [sacrebleu.BLEU(lowercase=lowercase, force=True), sacrebleu.CHRF(lowercase=lowercase),
               sacrebleu.CHRF(word_order=2, lowercase=lowercase)]
    return [(metric.corpus_score(hypotheses, [references]), metric.get_signature()) for metric in metrics]


def assert_equal(ours, theirs):
    for our, (their, signature) in zip(ours, theirs, strict=True):
        assert our["name"] == their.name
        # Python 3.12's sum() compensates for rounding, and libm may differ by a bit: no more than that.
        assert our["score"] == pytest.approx(their.score, rel=1e-14, abs=1e-300)
        assert our["signature"].split("|version:")[0] == str(signature).split("|version:")[0]
    bleu, their = ours[0], theirs[0][0]
    assert bleu["matches"] == list(their.counts) and bleu["totals"] == list(their.totals)
    assert bleu["precisions"] == list(their.precisions)
    assert (bleu["hypothesis_length"], bleu["reference_length"]) == (their.sys_len, their.ref_len)
    assert bleu["brevity_penalty"] == pytest.approx(their.bp, rel=1e-15)
    assert bleu["details"] == their._verbose


@pytest.mark.parametrize("seed", range(8))
def test_varied_texts(tmp_path, seed):
    generator = random.Random(seed)
    references = [generator.choice(REFERENCES) for _ in range(50)]
    hypotheses = [disturbed(line, generator) if generator.random() < 0.9 else "" for line in references]
    assert_equal(hinge_scores(tmp_path, hypotheses, references), sacre_scores(hypotheses, references))
    assert_equal(hinge_scores(tmp_path, hypotheses, references, "--lowercase"), sacre_scores(hypotheses, references, lowercase=True))


def test_random_characters(tmp_path):
    """The tokenizer on all signs beside each other."""
    generator = random.Random(1)
    signs = [chr(c) for c in range(33, 127)] + list("  .,.,-0123456789äß€…\u00a0\u3000&lt;")
    line = lambda: "".join(generator.choice(signs) for _ in range(generator.randrange(1, 60)))
    references = [line() for _ in range(500)]
    hypotheses = [reference[: generator.randrange(len(reference) + 1)] + line() for reference in references]
    assert_equal(hinge_scores(tmp_path, hypotheses, references), sacre_scores(hypotheses, references))


@pytest.mark.parametrize(
    "hypotheses, references",
    [
        ([""], ["a b c"]),  # nothing said
        (["a b c"], [""]),  # nothing to say
        ([""], [""]),
        (["x y z"], ["a b c"]),  # nothing right
        (["a"], ["a"]),  # shorter than the orders
        (["a b c d"], ["a b x d"]),  # orders without a match
        (["the the the the the"], ["the cat the"]),
        (["a b c d e f g"] * 3, ["a b c d e f g"] * 3),
        (["ab"], ["a"]),
    ],
)
def test_edges(tmp_path, hypotheses, references):
    assert_equal(hinge_scores(tmp_path, hypotheses, references), sacre_scores(hypotheses, references))


def assert_equal_documents(folder, translated, documents):
    """Both are lists of documents, which are lists of lines."""
    lines = lambda texts: [line for document in texts for line in document + [""]]
    ours = hinge_scores(folder, lines(translated), lines(documents), "--document")
    joined = lambda texts: [" ".join(line for line in document if line) for document in texts]
    theirs = sacre_scores(joined(translated), joined(documents))
    for our in ours:
        assert "|unit:document|" in our["signature"]
        our["signature"] = our["signature"].replace("|unit:document", "")
    assert_equal(ours, theirs)
    return ours


def test_documents(tmp_path):
    generator = random.Random(3)
    documents = [[generator.choice(REFERENCES).strip() for _ in range(generator.randrange(1, 9))] for _ in range(12)]
    assert_equal_documents(tmp_path, [[disturbed(line, generator).strip() for line in document] for document in documents], documents)


# ---- what a model has translated

CONFIG = """
task = "translation"
[model]
width = 48
ffn.width = 96
heads = 4
depth = 1
norm = "pre"
dropout = 0.0
max_length = 200
[data]
kind = "files"
pair = "en-de"
document_tokens = 60
[data.vocabulary]
size = 120
[optim]
batch = 600
steps = 300
lr = 4e-3
warmup_steps = 40
[train]
threads = 1
log_steps = 100
"""


def sentence(generator):
    """A sentence and its translation, with signs and numbers that the tokenizers have rules for."""
    number = generator.choice(["3", "3.5", "1,000", "$7", "20%", "10-15"])
    thing, ding = generator.choice([("dogs", "Hunde"), ("trees", "Bäume"), ("doors", "Türen"), ("houses", "Häuser"), ("AT&amp;T's cars", "AT&amp;Ts Autos")])
    see, sehen = generator.choice([("sees", "sieht"), ("buys", "kauft"), ("wants", "möchte"), ("paints", "malt")])
    who, wer = generator.choice([("The man", "Der Mann"), ("A woman", "Eine Frau"), ("The girl", "Das Mädchen")])
    end = generator.choice([".", "!", "?", "…", "..."])
    return f"{who} {see} {number} {thing}{end}", f"{wer} {sehen} {number} {ding}{end}"


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A run that has learned a little, and documents with their references that it has not seen: (run, sources, references)."""
    folder = tmp_path_factory.mktemp("translation")
    generator = random.Random(5)
    parts = {name: [[sentence(generator) for _ in range(generator.randrange(1, 7))] for _ in range(count)]
             for name, count in (("train", 400), ("valid", 10), ("test", 20))}
    for name, documents in parts.items():
        for side, language in enumerate(("en", "de")):
            (folder / f"{name}.{language}").write_text("".join(pair[side] + "\n" for document in documents for pair in [*document, ("", "")]))
    (folder / "config.toml").write_text(CONFIG)
    command = [HINGE, "train", folder / "config.toml", "--set", f"data.path={folder}", "--out", folder / "run"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return folder / "run", *([[pair[side] for pair in document] for document in parts["test"]] for side in (0, 1))


def translated(run, documents, *arguments):
    text = "".join(line + "\n" for document in documents for line in [*document, ""])
    done = subprocess.run([HINGE, "translate", run, *arguments], input=text, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    lines = iter(done.stdout.split("\n"))
    return [[next(lines) for _ in [*document, ""]][:-1] for document in documents]


def test_translations_of_lines(tmp_path, trained):
    run, sources, references = trained
    flat = lambda documents: [line for document in documents for line in document]
    hypotheses = flat(translated(run, sources))
    ours = hinge_scores(tmp_path, hypotheses, flat(references))
    assert_equal(ours, sacre_scores(hypotheses, flat(references)))
    assert 5 < ours[0]["score"] < 100, "the model should be right in part"


def test_translations_of_documents(tmp_path, trained):
    run, sources, references = trained
    hypotheses = translated(run, sources, "--document")
    assert any(document[0] and not document[-1] for document in hypotheses), "sentences of a document are translated together"
    assert 5 < assert_equal_documents(tmp_path, hypotheses, references)[0]["score"] < 100


def test_text_is_as_sacrebleu_prints_it(tmp_path):
    hyp, ref = tmp_path / "hyp", tmp_path / "ref"
    hyp.write_text("The cat sat on a mat.\n")
    ref.write_text("The cat sat on the mat.\n")
    run = subprocess.run([HINGE, "score", "-", ref, "--metric", "bleu"], stdin=hyp.open(), capture_output=True, text=True)
    bleu = sacrebleu.BLEU()
    score = bleu.corpus_score(["The cat sat on a mat."], [["The cat sat on the mat."]])
    expected = score.format(width=2, signature=str(bleu.get_signature()))
    assert run.stdout.split("|version:")[0] == expected.split("|version:")[0]
    assert run.stdout.split(" = ", 1)[1] == expected.split(" = ", 1)[1] + "\n"
