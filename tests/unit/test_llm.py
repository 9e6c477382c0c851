"""Language models by name, behind a server or recorded; the journal of calls and the budget."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from burnish.core.errors import BadInput, BurnishError, UnknownName
from burnish.core.run import Run
from burnish.llm import Budget, BudgetReached, Price, Sampling, connect, read_prices, record
from burnish.llm.client import request_key
from burnish.llm.replay import Replay
from burnish.llm.server import Server, estimate

# The servers of these tests listen on the loopback interface of this machine.
pytestmark = pytest.mark.allow_hosts(["127.0.0.1"])

SECRET = "sk-do-not-print-me"


def user(text):
    return [{"role": "user", "content": text}]


@pytest.fixture
def run(tmp_path):
    with Run(tmp_path / "run", {"use": "test"}) as run:
        yield run


# -- a server --------------------------------------------------------------------------------------------------------


class Fake:
    """An OpenAI-compatible server that answers with the last message in capitals, and may be told to fail."""

    def __init__(self):
        self.asked, self.headers, self.times = [], [], []
        self.troubles = []
        """(status, headers) of the next answers, before it is well."""
        self.refuse = lambda body: None
        """Status of an answer that this request always gets."""
        self.hook = lambda: None
        self.usage = True
        self.busy = self.most_busy = 0
        self.lock = threading.Lock()
        fake = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                with fake.lock:
                    fake.times.append(time.monotonic())
                    fake.asked.append(body)
                    fake.headers.append({name.lower(): value for name, value in self.headers.items()})
                    fake.busy += 1
                    fake.most_busy = max(fake.most_busy, fake.busy)
                    trouble = fake.troubles.pop(0) if fake.troubles else None
                fake.hook()
                status, headers = trouble or (fake.refuse(body) or 200, {})
                answer = {"error": {"message": f"trouble with key {SECRET}"}} if status != 200 else fake.answer(body)
                raw = json.dumps(answer).encode()
                with fake.lock:
                    fake.busy -= 1
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(raw)))
                self.end_headers()
                self.wfile.write(raw)

            def log_message(self, *args):
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.http.server_address[1]}/v1"
        threading.Thread(target=self.http.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()

    def answer(self, body):
        text = body["messages"][-1]["content"].upper()
        usage = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
        return {
            "id": "1",
            "object": "chat.completion",
            "created": 0,
            "model": "fake-2025",
            "choices": [{"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}],
            **({"usage": usage} if self.usage else {}),
        }

    @property
    def texts(self):
        return [body["messages"][-1]["content"] for body in self.asked]


@pytest.fixture
def fake(monkeypatch):
    for name in ("OPENAI_API_KEY", "BURNISH_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    server = Fake()
    yield server
    server.http.shutdown()
    server.http.server_close()


def test_server_answers_in_order(fake, run):
    llm = connect(f"{fake.url}#some/model")
    sampling = Sampling(temperature=0.5, top_p=0.9, top_k=7, max_tokens=20, stop=("END",))
    replies = llm.generate([user(word) for word in "abcdefghij"], sampling, run)
    assert [reply.text for reply in replies] == list("ABCDEFGHIJ")
    reply = replies[0]
    assert (reply.finish, reply.model, reply.cost, reply.logprobs) == ("stop", "fake-2025", None, None)
    assert (reply.usage.prompt_tokens, reply.usage.completion_tokens) == (10, 5)
    body = fake.asked[0]
    sent = {name: body[name] for name in ("model", "temperature", "top_p", "top_k", "max_tokens", "stop")}
    assert sent == {
        "model": "some/model", "temperature": 0.5, "top_p": 0.9, "top_k": 7, "max_tokens": 20, "stop": ["END"]
    }  # fmt: skip
    assert len({body["seed"] for body in fake.asked}) == 10


def test_no_more_calls_at_once_than_allowed(fake, run):
    together = threading.Barrier(3)
    fake.hook = lambda: together.wait(60)  # passes only when three calls are there at one time
    Server(fake.url, "m", concurrency=3).generate([user(str(i)) for i in range(9)], Sampling(), run)
    assert fake.most_busy == 3


def test_server_tries_again_and_waits_as_told(fake, run):
    fake.troubles = [(429, {"Retry-After": "0.3"}), (503, {"Retry-After": "0.01"}), (500, {"Retry-After": "0.01"})]
    assert connect(f"{fake.url}#m").generate([user("a")], Sampling(), run)[0].text == "A"
    assert len(fake.asked) == 4
    assert fake.times[1] - fake.times[0] >= 0.3


def test_failing_server_keeps_what_was_answered(fake, run, tmp_path):
    fake.refuse = lambda body: 500 if body["messages"][-1]["content"] in "de" else None
    llm = Server(fake.url, "m", concurrency=1, retries=0)
    chats = [user(word) for word in "abcdefg"]
    with pytest.raises(BurnishError, match=r"1 calls to .* failed") as caught:
        llm.generate(chats, Sampling(), run)
    assert "same command" in caught.value.fix
    assert fake.texts == list("abcd")  # no new call after the failure
    fake.refuse = lambda body: None
    assert [reply.text for reply in llm.generate(chats, Sampling(), run)] == list("ABCDEFG")
    assert fake.texts == list("abcd" + "defg")


def test_a_bad_call_holds_up_no_other(fake, run):
    fake.refuse = lambda body: 400 if body["messages"][-1]["content"] in "bd" else None
    with pytest.raises(BurnishError, match="2 calls to") as caught:
        Server(fake.url, "m").generate([user(word) for word in "abcde"], Sampling(), run)
    assert "mend the chats" in caught.value.fix
    assert sorted(fake.texts) == list("abcde")
    lines = (run.folder / "llm.jsonl").read_text().splitlines()
    assert sorted(json.loads(line)["value"]["reply"]["text"] for line in lines) == list("ACE")


@pytest.mark.parametrize(("status", "said"), [(401, "BURNISH_API_KEY"), (404, "/models"), (503, "wait")])
def test_what_to_do_about_a_status(fake, run, status, said):
    fake.troubles = [(status, {})]
    with pytest.raises(BurnishError) as caught:
        Server(fake.url, "m", retries=0).generate([user("a")], Sampling(), run)
    assert said in caught.value.fix


def test_no_server(run):
    with ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as gone:
        url = f"http://127.0.0.1:{gone.server_address[1]}/v1"
    with pytest.raises(BurnishError) as caught:
        Server(url, "m", retries=0).generate([user("a")], Sampling(), run)
    assert "runs and can be reached" in caught.value.fix


def test_answer_that_is_no_completion(fake, run):
    fake.answer = lambda body: {"hello": "world"}
    with pytest.raises(BurnishError, match="no chat completion"):
        Server(fake.url, "m").generate([user("a")], Sampling(), run)
    assert not (run.folder / "llm.jsonl").exists()


def test_key_is_sent_and_never_shown(fake, run, monkeypatch, caplog, capfd):
    caplog.set_level(logging.DEBUG)
    monkeypatch.setenv("OPENAI_API_KEY", "another")
    monkeypatch.setenv("BURNISH_API_KEY", SECRET + "\n")
    fake.troubles = [(200, {}), (401, {})]
    llm = Server(fake.url, "m", concurrency=1, retries=0)
    with pytest.raises(BurnishError) as caught:
        llm.generate([user("a"), user("b")], Sampling(), run)
    assert fake.headers[0]["authorization"] == f"Bearer {SECRET}"
    assert "trouble with key [key]" in str(caught.value)
    written = "".join(path.read_text() for path in run.folder.rglob("*") if path.is_file())
    shown = "".join(capfd.readouterr())
    for place in (str(caught.value), written, caplog.text, shown):
        assert SECRET not in place
    monkeypatch.delenv("BURNISH_API_KEY")
    llm.generate([user("c")], Sampling(), run)
    assert fake.headers[-1]["authorization"] == "Bearer another"


def test_inside_a_running_loop(fake, run):
    async def notebook():
        return connect(f"{fake.url}#m").generate([user("a")], Sampling(), run)

    assert asyncio.run(notebook())[0].text == "A"


def test_missing_usage_is_estimated(fake, run):
    fake.usage = False
    reply = connect(f"{fake.url}#m").generate([user("a" * 40)], Sampling(), run)[0]
    assert (reply.usage.prompt_tokens, reply.usage.completion_tokens) == (14, 14)


# -- the journal -----------------------------------------------------------------------------------------------------


def test_nothing_is_asked_twice(fake, tmp_path):
    chats = [user("a"), user("b"), user("a")]
    with Run(tmp_path / "run", {}) as run:
        first = connect(f"{fake.url}#m").generate(chats, Sampling(), run)
    assert len(fake.asked) == 3  # two samples of "a" are two calls
    entries = [json.loads(line) for line in (run.folder / "llm.jsonl").read_text().splitlines()]
    assert len({entry["key"] for entry in entries}) == 3
    with Run(tmp_path / "run", {}) as run:
        llm = connect(f"{fake.url}#m")
        assert llm.generate(chats, Sampling(), run) == first
        assert llm.generate([user("a")], Sampling(), run) == [first[0]]
        assert len(fake.asked) == 3
        llm.generate([user("a")], Sampling(seed=1), run)
        llm.generate([user("a")], Sampling(max_tokens=5), run)
        llm.generate([user("a ")], Sampling(), run)
        connect(f"{fake.url}#other").generate([user("a")], Sampling(), run)
        llm.generate([user("a")], Sampling(), run.sub("part"))
    assert len(fake.asked) == 8


def test_two_handles_on_one_journal(fake, run):
    one, other = connect(f"{fake.url}#m"), connect(f"{fake.url}#m")
    one.generate([user("a")], Sampling(), run)
    other.generate([user("a"), user("b")], Sampling(), run)
    one.generate([user("a"), user("b")], Sampling(), run)
    assert sorted(fake.texts) == ["a", "b"]


def test_key_depends_on_everything():
    chat, sampling = user("a"), Sampling(temperature=1.0)
    keys = {
        request_key("m", chat, sampling, 0),
        request_key("n", chat, sampling, 0),
        request_key("m", user("b"), sampling, 0),
        request_key("m", [{"role": "system", "content": "a"}], sampling, 0),
        request_key("m", chat, Sampling(temperature=1.0, seed=3), 0),
        request_key("m", chat, sampling, 1),
    }
    assert len(keys) == 6
    # A journal of today must be read tomorrow: the key of a given call stays.
    stable = request_key("m", chat, Sampling(), 0)
    assert stable == "99d3d254a679bf15b21e9b8ee17963650d6938c3551b875c937b2d100dea6448"


def test_killed_and_started_again(fake, tmp_path):
    """The process is killed while its third call is under way; what it was answered is not asked again."""
    code = (
        "import sys; from burnish.core.run import Run; from burnish.llm.server import Server; "
        "from burnish.llm import Sampling; run = Run(sys.argv[1], {});"
        "Server(sys.argv[2], 'm', concurrency=1).generate("
        "[[{'role': 'user', 'content': w}] for w in 'abcd'], Sampling(), run)"
    )
    folder = tmp_path / "run"
    with subprocess.Popen([sys.executable, "-c", code, str(folder), fake.url], stderr=subprocess.DEVNULL) as child:
        fake.hook = lambda: os.kill(child.pid, signal.SIGKILL) if len(fake.asked) == 3 else None
    assert child.returncode == -signal.SIGKILL
    fake.hook = lambda: None
    assert fake.texts == list("abc")
    # And as if it had been killed in the middle of a line.
    with (folder / "llm.jsonl").open("ab") as journal:
        journal.write(b'{"key": "torn')
    with Run(folder, {}) as run:
        replies = Server(fake.url, "m", concurrency=1).generate([user(word) for word in "abcd"], Sampling(), run)
    assert [reply.text for reply in replies] == list("ABCD")
    assert fake.texts == list("abc" + "cd")


@pytest.mark.parametrize(
    ("chats", "said"),
    [
        ([[]], "chat 0 is empty"),
        (["hello"], "chat 0 is a string"),
        ([user("a"), [{"role": "robot", "content": "a"}]], "chat 1, message 0: the role is 'robot'"),
        ([[{"role": "user"}]], "not a role and a content"),
        ([[{"role": "user", "content": 3}]], "the content is no text"),
        ([user("\ud800")], "the content is no text"),
        ([[*user("a"), {"role": "assistant", "content": "b"}]], "ends with the assistant's turn"),
    ],
)
def test_bad_chats_are_named(fake, run, chats, said):
    with pytest.raises(BadInput, match=said):
        connect(f"{fake.url}#m").generate([*chats, []], Sampling(), run)
    assert not fake.asked


# -- the budget ------------------------------------------------------------------------------------------------------


def test_token_budget_stops_and_goes_on(fake, tmp_path):
    chats = [user(word) for word in "abcdef"]
    sampling = Sampling(max_tokens=20)
    with Run(tmp_path / "run", {}) as run:
        Budget(tokens=60).set(run)
        llm = Server(fake.url, "m")
        # A call takes 15 tokens, and before it is sent 24 at most: two fit, then one, then none beside the 45 spent.
        with pytest.raises(BudgetReached, match=r"3 calls to go: 45 of 60 tokens are spent, .* 24") as caught:
            llm.generate(chats, sampling, run)
        assert "larger budget" in caught.value.fix
        assert fake.texts[2] == "c"
        assert len(fake.asked) == 3
        assert llm.generate(chats[:3], sampling, run)[2].text == "C"  # what is there costs nothing
        with pytest.raises(BudgetReached):
            connect(f"{fake.url}#judge").generate(chats[:1], sampling, run.sub("part"))
    with Run(tmp_path / "run", {}) as run:
        assert Budget.of(run.sub("part")) == Budget(tokens=60)
        Budget(tokens=120).set(run)
        assert len(Server(fake.url, "m").generate(chats, sampling, run)) == 6
    assert len(fake.asked) == 6


def test_dollar_budget(fake, run, tmp_path):
    prices = tmp_path / "prices.toml"
    prices.write_text('["big/model"]\nprompt = 100_000\ncompletion = 400_000.0\n')
    Budget(dollars=9).set(run)
    llm = connect(f"{fake.url}#big/model", read_prices(prices))
    assert llm.generate([user("a")], Sampling(max_tokens=10), run)[0].cost == pytest.approx(10 * 0.1 + 5 * 0.4)
    with pytest.raises(BudgetReached, match=r"2 calls to go: 9\.0000 of 9 dollars are spent, .* 2\.4000"):
        llm.generate([user(word) for word in "abcd"], Sampling(max_tokens=5), run)
    with pytest.raises(BadInput, match="price of cheap is not known"):
        connect(f"{fake.url}#cheap", read_prices(prices)).generate([user("a")], Sampling(), run)


def test_prices_in_json_and_their_faults(tmp_path):
    good = tmp_path / "prices.json"
    good.write_text('{"m": {"prompt": 1, "completion": 2}}')
    assert read_prices(good) == {"m": Price(prompt=1, completion=2)}
    bad = tmp_path / "bad.toml"
    bad.write_text("[m]\nprompt = -1\n[n]\nprompt = 1\ncompletion = 'x'\n")
    with pytest.raises(BadInput) as caught:
        read_prices(bad)
    for fault in ("m.prompt", "m.completion", "n.completion"):
        assert fault in caught.value.problem
    bad.write_text("[")
    for path in (bad, tmp_path / "none.toml"):
        with pytest.raises(BadInput, match="cannot be read as prices"):
            read_prices(path)


def test_damaged_budget(run):
    (run.folder / "budget.json").write_text("{")
    with pytest.raises(BadInput, match="damaged"):
        Budget.of(run)


def test_estimate_counts_bytes():
    assert estimate("漢" * 4) == 3 + 4


# -- recordings ------------------------------------------------------------------------------------------------------


@pytest.fixture
def recorded(fake, tmp_path):
    with Run(tmp_path / "live", {}) as run:
        llm = Server(fake.url, "m")
        llm.generate([user("first question"), user("first question"), user("second one")], Sampling(), run)
        llm.generate([user("in a part")], Sampling(), run.sub("part"))
    file = tmp_path / "calls.jsonl"
    assert record(tmp_path / "live", file) == 4
    return file


def test_replay_gives_the_same(recorded, run, fake):
    fake.asked.clear()
    llm = connect(f"replay:{recorded}")
    assert llm.name == f"{fake.url}#m"
    replies = llm.generate([user("second one"), user("first question"), user("in a part")], Sampling(), run)
    assert [reply.text for reply in replies] == ["SECOND ONE", "FIRST QUESTION", "IN A PART"]
    assert not fake.asked
    assert not (run.folder / "llm.jsonl").exists()


def test_replay_of_a_journal_that_was_torn(recorded, run, tmp_path):
    journal = tmp_path / "live" / "llm.jsonl"
    torn = journal.read_bytes() + b'{"key": "to'
    journal.write_bytes(torn)
    assert connect(f"replay:{journal}").generate([user("second one")], Sampling(), run)[0].text == "SECOND ONE"
    assert journal.read_bytes() == torn


def test_unknown_request_shows_its_hash_and_the_nearest(recorded, run):
    llm = Replay(recorded)
    with pytest.raises(BadInput) as caught:
        llm.generate([user("second one"), user("second two"), user("first question")], Sampling(), run)
    problem = caught.value.problem
    assert "no answer to 1 of 3 requests" in problem
    assert request_key(llm.name, user("second two"), Sampling(), 0)[:12] in problem
    assert request_key(llm.name, user("second one"), Sampling(), 0)[:12] in problem
    assert "part at character 13: 'one' there, 'two' here" in problem
    with pytest.raises(BadInput, match=r"temperature is 0\.0 there, 0\.5 here"):
        llm.generate([user("second one")], Sampling(temperature=0.5), run)
    with pytest.raises(BadInput, match="sample 1 there, 2 here"):
        llm.generate([user("first question")] * 3, Sampling(), run)


def test_nearest_has_the_same_sampling_if_any_has(fake, run, tmp_path):
    for seed in (0, 1):
        connect(f"{fake.url}#m").generate([user("a")], Sampling(seed=seed), run)
    llm = connect(f"replay:{run.folder / 'llm.jsonl'}")
    for seed in (0, 1):
        with pytest.raises(BadInput, match="sample 0 there, 1 here") as caught:
            llm.generate([user("a")] * 2, Sampling(seed=seed), run)
        assert "seed is" not in caught.value.problem


def test_replay_of_several_models(recorded, run, tmp_path, fake):
    with Run(tmp_path / "live", {}) as live:
        Server(fake.url, "n").generate([user("second one")], Sampling(), live)
    record(tmp_path / "live", recorded)
    with pytest.raises(BadInput, match="answers of 2 models"):
        connect(f"replay:{recorded}")
    llm = connect(f"replay:{recorded}#{fake.url}#n")
    assert llm.generate([user("second one")], Sampling(), run)[0].text == "SECOND ONE"
    with pytest.raises(UnknownName):
        connect(f"replay:{recorded}#nobody")


def test_damaged_recordings_are_named(recorded, tmp_path):
    lines = recorded.read_text().splitlines()
    recorded.write_text("\n".join([lines[0], "{", '{"key": "a", "value": {"model": "m"}}', lines[1]]) + "\n")
    with pytest.raises(BadInput) as caught:
        Replay(recorded)
    assert "line 2: no recorded call" in caught.value.problem
    assert "line 3: chat" in caught.value.problem
    with pytest.raises(BadInput, match="cannot be read"):
        Replay(tmp_path / "none.jsonl")
    recorded.write_text("")
    with pytest.raises(BadInput, match="holds no recorded calls"):
        Replay(recorded)
    (tmp_path / "empty").mkdir()
    with pytest.raises(BadInput, match="holds no calls"):
        record(tmp_path / "empty", recorded)


# -- names -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("", "no language model is named"),
        ("http://127.0.0.1:8000/v1", "which of the server's models"),
        ("http://#m", "names no server"),
        ("http://127.0.0.1:port/v1#m", "names no server"),
    ],
)
def test_names_that_say_too_little(spec, said):
    with pytest.raises(BadInput, match=said):
        connect(spec)


@pytest.mark.parametrize("spec", [f"http://me:{SECRET}@host/v1#m", f"https://host/v1?key={SECRET}#m"])
def test_no_secret_in_an_address(spec):
    with pytest.raises(BadInput, match="BURNISH_API_KEY") as caught:
        connect(spec)
    assert SECRET not in str(caught.value)


def test_importing_llm_is_light():
    code = "import sys, burnish.llm, burnish.llm.server; print([m for m in ('torch', 'openai') if m in sys.modules])"
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "[]"
