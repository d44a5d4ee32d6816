"""The page of `hinge watch --web` in a real browser: Debian's Chromium, driven by Playwright. `make test-web` runs it.

HINGE is the command. With SCREENSHOTS=FOLDER, pictures of the page are kept there to be looked at.
"""
import base64
import json
import os
import re
import shutil
import signal
import struct
import subprocess
import zlib

import pytest
from playwright.sync_api import expect, sync_playwright

HINGE = os.environ.get("HINGE", "build/release/bin/hinge")
SCREENSHOTS = os.environ.get("SCREENSHOTS")
CHROMIUM = shutil.which("chromium")
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
         "--disable-component-update", "--disable-sync"]

VISION = """
[model]
image_size = 28
channels = 1
classes = 0
patch = 7
width = 32
depth = 2
ffn.width = 64
heads = 2
[data]
format = "synthetic"
synthetic_size = 28
synthetic_channels = 1
synthetic_classes = 4
synthetic_count = 128
[optim]
batch = 32
steps = 40
lr = 5e-3
[train]
workers = 1
threads = 1
log_steps = 1
"""

TRANSLATION = """
task = "translation"
[model]
width = 32
depth = 1
heads = 2
ffn.width = 64
max_length = 64
attention.preset = "reluformer"
[data]
kind = "files"
path = "{folder}"
pair = "en-de"
longest_tokens = 60
vocabulary.size = 60
[optim]
batch = 320
steps = 30
lr = 5e-3
warmup_steps = 4
[train]
workers = 1
threads = 1
log_steps = 5
"""


def hinge(*arguments):
    subprocess.run([HINGE, *map(str, arguments)], check=True, capture_output=True, text=True)


def png(size=28):
    """A grey picture with a bright square."""
    rows = b"".join(b"\0" + bytes(230 if 8 <= x < 20 and 8 <= y < 20 else 30 for x in range(size)) for y in range(size))

    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", size, size, 8, 0, 0, 0, 0))
            + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))


class Server:
    def __init__(self, folder, *arguments):
        self.process = subprocess.Popen([HINGE, "watch", "--web", "--port", "0", *arguments, str(folder)], stdout=subprocess.PIPE, text=True)
        self.url = re.search(r"http://\S+", self.process.stdout.readline()).group()

    def stop(self):
        self.process.send_signal(signal.SIGINT)
        assert self.process.wait(timeout=60) == 0


@pytest.fixture(scope="session")
def runs(tmp_path_factory):
    """Two vision runs, a translation and a sweep."""
    folder = tmp_path_factory.mktemp("watched")
    (folder / "vision.toml").write_text(VISION)
    for preset in ["relu-vit", "softmax"]:
        hinge("train", folder / "vision.toml", "--set", f"model.attention.preset={preset}", "--out", folder / "runs" / preset)
    words = {"zero": "null", "one": "eins", "two": "zwei", "three": "drei", "four": "vier", "five": "fuenf", "six": "sechs"}
    for name, count in [("train", 240), ("valid", 40)]:
        sentences = [[list(words)[(i * 7 + j * (i % 5 + 1)) % len(words)] for j in range(1 + i % 6)] for i in range(count)]
        (folder / f"{name}.en").write_text("".join(" ".join(s) + "\n" for s in sentences))
        (folder / f"{name}.de").write_text("".join(" ".join(words[w] for w in s) + "\n" for s in sentences))
    (folder / "translation.toml").write_text(TRANSLATION.format(folder=folder))
    hinge("train", folder / "translation.toml", "--out", folder / "runs" / "numbers")
    (folder / "rates.toml").write_text(f"""title = "Learning rates"
base = "vision.toml"
set = {{ "optim.steps" = 8 }}
[axes.lr]
key = "optim.lr"
label = "learning rate"
values = [1e-3, 4e-3, 8e-3]
[[grid]]
axes = ["lr"]
[[figure]]
name = "rates"
x = "lr"
y = "eval/accuracy"
percent = true
""")
    hinge("sweep", folder / "rates.toml", "--out", folder / "runs" / "sweeps" / "rates", "--jobs", "1")
    return folder


@pytest.fixture(scope="session")
def browser():
    with sync_playwright() as playwright:
        with playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS) as chromium:
            yield chromium


class Watched:
    """A page that has no errors, obeys its policy and asks nobody else."""

    def __init__(self, browser, server, **options):
        self.problems = []
        self.context = browser.new_context(accept_downloads=True, **options)
        self.context.set_default_timeout(60_000)
        self.page = self.context.new_page()
        origin = "http://" + server.url.split("/")[2]
        self.page.on("console", lambda message: self.problems.append(message.text) if message.type in ("error", "warning") else None)
        self.page.on("pageerror", lambda error: self.problems.append(str(error)))
        self.page.on("request", lambda request: None if request.url.startswith((origin, "data:")) else self.problems.append(request.url))
        self.page.goto(server.url)
        self.page.wait_for_selector("#runs tbody tr")

    def picture(self, name, full_page=True):
        if SCREENSHOTS:
            os.makedirs(SCREENSHOTS, exist_ok=True)
            self.page.screenshot(path=f"{SCREENSHOTS}/{name}.png", full_page=full_page)

    def ids(self):
        return self.page.eval_on_selector_all("#runs tbody tr", "rows => rows.map(row => row.dataset.id)")

    def choose_only(self, *ids):
        if self.page.is_enabled("#choose-none"):
            self.page.click("#choose-none")
        for one in ids:
            self.page.check(f'tr[data-id="{one}"] input')


@pytest.fixture
def watched(browser, request, runs):
    """A page of a copy of the runs."""
    opened = []

    def open_page(folder=None, arguments=(), **options):
        server = Server(folder or runs / "runs", *arguments)
        opened.append((Watched(browser, server, **options), server))
        return opened[-1][0]

    yield open_page
    for page, server in opened:
        problems = page.problems
        page.context.close()
        server.stop()
        assert problems == []


def test_table_sorts_and_filters(watched):
    view = watched()
    page = view.page
    assert set(view.ids()) == {"relu-vit", "softmax", "numbers"} | {i for i in view.ids() if i.startswith("sweeps/rates/")}
    assert len(view.ids()) == 6
    headers = page.locator("#runs thead th").all_inner_texts()
    assert "model.attention.preset" in headers and "model.heads" not in headers  # only keys that differ
    page.get_by_role("button", name="run", exact=True).click()
    assert view.ids() == sorted(view.ids())
    page.get_by_role("button", name="run", exact=True).click()
    assert view.ids() == sorted(view.ids(), reverse=True)
    page.fill("#filter", "attention.preset=softmax")
    assert view.ids() == ["softmax"]
    page.fill("#filter", "nothing like it")
    expect(page.locator("#no-runs")).to_have_text("No run matches.")
    page.fill("#filter", "")
    page.uncheck("#show-keys")
    assert "model.attention.preset" not in page.locator("#runs thead th").all_inner_texts()
    view.picture("desktop")


def test_keyboard(watched):
    view = watched()
    page = view.page
    page.keyboard.press("/")
    page.keyboard.type("numb")
    assert view.ids() == ["numbers"]
    page.keyboard.press("Escape")
    assert len(view.ids()) == 6
    page.keyboard.press("ArrowDown")
    page.keyboard.press("j")
    focused = page.evaluate("document.activeElement.dataset.id")
    assert focused == view.ids()[1]
    before = page.get_attribute(f'tr[data-id="{focused}"]', "aria-selected")
    page.keyboard.press(" ")
    assert page.get_attribute(f'tr[data-id="{focused}"]', "aria-selected") != before
    page.keyboard.press("Enter")
    page.wait_for_selector("#details[open]")
    expect(page.locator("#details-title")).to_have_text(focused)
    page.keyboard.press("Escape")
    page.wait_for_selector("#details:not([open])", state="attached")
    assert page.evaluate("document.activeElement.dataset.id") == focused


def test_curves_over_one_another(watched):
    view = watched()
    page = view.page
    view.choose_only("relu-vit", "softmax")
    expect(page.locator("#chart path[data-run]")).to_have_count(2)
    assert page.get_attribute('#chart path[data-run="softmax"]', "data-points") == "40"
    linear = page.get_attribute('#chart path[data-run="softmax"]', "d")
    page.check("#log-axis")
    assert page.get_attribute('#chart path[data-run="softmax"]', "d") != linear
    page.uncheck("#log-axis")
    page.locator("#smoothing").fill("0.9")
    expect(page.locator("#chart path.raw")).to_have_count(2)
    assert page.get_attribute('#chart path[data-run="softmax"]', "d") != linear
    expect(page.locator("#legend li")).to_have_count(2)
    view.picture("curves")
    page.select_option("#metric", "eval/accuracy")
    expect(page.locator("#chart svg")).to_have_attribute("aria-label", re.compile("eval/accuracy"))


def test_a_curve_grows_during_a_training(watched, runs, tmp_path):
    (tmp_path / "runs").mkdir()
    training = subprocess.Popen([HINGE, "train", runs / "vision.toml", "--set", "optim.steps=100000", "--out", tmp_path / "runs" / "live"],
                                stderr=subprocess.DEVNULL)
    try:
        while not (tmp_path / "runs" / "live" / "metrics.jsonl").exists():
            assert training.poll() is None
        view = watched(tmp_path / "runs")
        page = view.page
        expect(page.locator(".state.running").first).to_be_visible()
        page.wait_for_selector("#chart path[data-run=live]")
        last = "d => Number(document.querySelector('#legend .value').textContent.split(' at ')[1])"
        before = page.evaluate(last)
        page.wait_for_function(f"before => ({last})() > before + 50", arg=before)
        view.picture("live", full_page=False)
    finally:
        training.send_signal(signal.SIGINT)
        training.wait(timeout=60)
    page.wait_for_selector(".state.stopped")
    page.click('td.name button:text-is("live")')
    page.wait_for_selector("#resume")
    assert page.inner_text("#resume") == f"hinge train --resume {tmp_path / 'runs' / 'live'}"
    assert "stopped at step" in page.inner_text("#log")


def test_a_dropped_picture(watched):
    view = watched()
    page = view.page
    view.choose_only("relu-vit", "softmax")
    data = page.evaluate_handle("""bytes => {
        const transfer = new DataTransfer();
        transfer.items.add(new File([Uint8Array.from(atob(bytes), c => c.charCodeAt(0))], 'square.png', { type: 'image/png' }));
        return transfer;
    }""", base64.b64encode(png()).decode())
    page.dispatch_event("#picture-input", "drop", {"dataTransfer": data})
    expect(page.locator(".answer .classes")).to_have_count(2)
    for run in ["relu-vit", "softmax"]:
        answer = page.locator(f'.answer[data-run="{run}"]')
        expect(answer.locator("meter")).to_have_count(4)
        expect(answer.locator("img")).to_have_count(4)  # the image, two layers, the rollout
        assert answer.locator("img").first.evaluate("image => image.decode().then(() => image.naturalWidth)") >= 256
        assert "share of exact zeros" in answer.inner_text()
    view.picture("picture")
    page.set_input_files("#picture-file", {"name": "no.png", "mimeType": "image/png", "buffer": b"not a picture"})
    expect(page.locator(".answer .bad")).to_have_count(2)  # one by one
    expect(page.locator(".answer .bad").first).to_contain_text("neither")
    view.problems[:] = [problem for problem in view.problems if "422" not in problem]  # Chromium's note of the refused request


def test_a_sentence(watched, runs, tmp_path):
    shutil.copytree(runs / "runs" / "numbers", tmp_path / "runs" / "relu")
    hinge("train", runs / "translation.toml", "--set", "model.attention.preset=softmax", "--out", tmp_path / "runs" / "softmax")
    view = watched(tmp_path / "runs")
    page = view.page
    view.choose_only("relu", "softmax")
    page.fill("#sentence", "one two three")
    page.keyboard.press("Enter")
    for run in ["relu", "softmax"]:
        answer = page.locator(f'.answer[data-run="{run}"]')
        answer.locator("img").first.wait_for()
        assert answer.locator(".text").inner_text()
        assert answer.locator("img").first.evaluate("image => image.decode().then(() => image.naturalWidth)") > 100
    tops = [page.locator(f'.answer[data-run="{run}"]').bounding_box()["y"] for run in ["relu", "softmax"]]
    assert tops[0] == tops[1]  # side by side
    view.picture("sentence")


def test_notes_archive_and_resume(watched, runs, tmp_path):
    shutil.copytree(runs / "runs" / "softmax", tmp_path / "runs" / "my run")
    shutil.copytree(runs / "runs" / "relu-vit", tmp_path / "runs" / "other")
    view = watched(tmp_path / "runs")
    page = view.page
    page.click('td.name button:text-is("my run")')
    page.fill("#note", "lr too high?\n<b>no</b>")
    page.click("#save-note")
    expect(page.locator('tr[data-id="my run"] .note')).to_have_text("lr too high?")
    assert (tmp_path / "runs" / "my run" / "note.txt").read_text() == "lr too high?\n<b>no</b>"
    view.picture("details", full_page=False)
    page.click("#archive")
    expect(page.locator("#archive")).to_have_text("Take out of the archive")
    page.click("#details-close")
    assert view.ids() == ["other"]
    page.check("#show-archived")
    assert set(view.ids()) == {"my run", "other"}
    assert (tmp_path / "runs" / "my run" / "archived").exists()


def test_the_report_is_saved(watched, tmp_path):
    view = watched()
    view.choose_only("relu-vit", "softmax")
    with view.page.expect_download() as download:
        view.page.click("#save-report")
    download.value.save_as(tmp_path / "report.html")
    text = (tmp_path / "report.html").read_text()
    assert "Vision transformers compared" in text and "Attention maps" in text and text.endswith("</html>\n")


def test_sweeps_are_figures(watched):
    view = watched()
    page = view.page
    figure = page.locator(".sweep img")
    figure.scroll_into_view_if_needed()
    assert figure.evaluate("image => image.decode().then(() => image.naturalWidth)") > 300
    expect(page.locator(".sweep summary")).to_contain_text("3 points: 3 done")
    page.get_by_role("button", name="Show its runs").click()
    assert len(view.ids()) == 3


def test_on_a_phone_and_in_the_dark(watched):
    view = watched(viewport={"width": 390, "height": 844}, color_scheme="dark", has_touch=True, is_mobile=True, device_scale_factor=2)
    page = view.page
    page.wait_for_selector("#chart path[data-run]")
    assert page.evaluate("document.documentElement.scrollWidth") <= 390  # nothing sticks out
    red = int(re.search(r"rgb\((\d+)", page.evaluate("getComputedStyle(document.body).backgroundColor")).group(1))
    assert red < 60
    view.picture("phone-dark")
    page.tap('td.name button:text-is("softmax")')
    page.wait_for_selector("#details[open]")
    view.picture("phone-details", full_page=False)


def test_a_page_that_loses_its_server_says_so(browser, runs):
    server = Server(runs / "runs")
    view = Watched(browser, server)
    server.stop()
    expect(view.page.locator("#connection")).to_be_visible(timeout=60_000)
    view.context.close()


def test_two_hundred_runs(watched, tmp_path, capsys):
    for i in range(200):
        run = tmp_path / "runs" / f"run-{i:03}"
        run.mkdir(parents=True)
        (run / "config.toml").write_text(f'task = "vision"\n[train]\nseed = {i}\n')
        values = {"accuracy": i / 200, "images_per_second": 100 + i, "train_seconds": 10}
        (run / "status.json").write_text(json.dumps({"state": "done", "step": 500, "steps": 500, "best": i / 200, "best_step": 500, "message": "",
                                                     "values": values, "started": "", "updated": "", "pid": 1}))
        (run / "metrics.jsonl").write_text("".join(json.dumps({"step": s, "train/loss": 2 / s + i / 1000}) + "\n" for s in range(1, 501)))
    view = watched(tmp_path / "runs")
    assert len(view.ids()) == 200
    times = view.page.evaluate("""() => {
        const request = performance.getEntriesByType('resource').find(entry => entry.name.includes('/api/runs'));
        return [request.responseEnd, performance.now()];
    }""")
    with capsys.disabled():
        print(f"\n200 runs: the table's data were there {times[0]:.0f} ms after the page was asked for")
    view.page.get_by_role("button", name="best", exact=True).click()
    assert view.ids()[:2] == ["run-199", "run-198"]
    view.picture("many", full_page=False)


def test_the_token(browser, runs):
    server = Server(runs / "runs", "--host", "0.0.0.0")
    server.url = re.sub(r"//[^:/]+:", "//127.0.0.1:", server.url)
    view = Watched(browser, server)
    assert len(view.ids()) == 6 and "token" not in view.page.url
    other = browser.new_context().new_page()
    assert other.goto(server.url.split("?")[0]).status == 401
    other.context.close()
    view.context.close()
    server.stop()
