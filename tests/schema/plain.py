"""A producer and two readers that use httpx and nothing else: `plain.py BINARY FOLDER`. The server is killed (SIGKILL) and
started again while they are at work, connections are torn, requests are repeated; every event is taken once and read once,
in order, and the transcript is whole. Everything that the server sends as JSON is read with `json.loads`."""

import json
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import httpx

from sse import messages_of

BINARY, FOLDER = sys.argv[1], Path(sys.argv[2])
DEADLINE_SECONDS = 60
EVENTS = 60
LEASE_SECONDS = 30
LONG_POLL_MS = 300
LINES = {"content-type": "application/x-ndjson"}
# What a client sees when a server dies or a connection is torn.
LOST = (httpx.TransportError,)


class Server:
    """The server as a process that can die. It has the same address each time, as behind a service manager."""

    def __init__(self):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.address = probe.getsockname()
        self.url = "http://%s:%s" % self.address
        self.start()

    def start(self):
        command = [BINARY, "--data", str(FOLDER / "data"), "serve", "--listen", "%s:%s" % self.address, "--log", "warn"]
        command += ["--long-poll-timeout-ms", str(LONG_POLL_MS)]
        with open(FOLDER / "log", "a") as log:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log)
        assert self.process.stdout.readline(), (FOLDER / "log").read_text()

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        self.process.stdout.close()


def expect(response, status):
    assert response.status_code == status, f"{response.request.url}: {response.status_code} {response.text}"
    return json.loads(response.content) if response.content else None


def until_answered(ask):
    """Repeats a request until it is answered: a server that is away comes back."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    while True:
        try:
            response = ask()
            if response.status_code != 503:
                return response
        except LOST:
            pass
        assert time.monotonic() < deadline, "the server does not come back"
        time.sleep(0.02)


def line(event, **payload):
    return json.dumps({"event": event, "payload": payload}) + "\n"


def word(nth):
    return f"word{nth} \u00e9\u2028\U0001f600 "


class Producer:
    """Appends with `expect_seq`, and so repeats whatever was not answered."""

    def __init__(self, server, session, run):
        self.server, self.last_seq = server, 0
        self.path = f"/v1/sessions/{session}/runs/{run}/events"
        self.client = httpx.Client(base_url=server.url, timeout=5, trust_env=False)

    def append(self, lines):
        asked = {"expect_seq": self.last_seq + 1, "durability": "buffered"}
        ask = lambda: self.client.post(self.path, params=asked, content=lines.encode(), headers=LINES)
        taken = expect(until_answered(ask), 200)
        self.last_seq += lines.count("\n")
        assert taken["last_seq"] == self.last_seq, taken
        return ask

    def append_twice(self, lines):
        repeat = self.append(lines)
        assert expect(until_answered(repeat), 200) == {"last_seq": self.last_seq}

    def append_on_a_torn_connection(self, lines):
        """The request is whole, and its answer is never read."""
        body = lines.encode()
        head = f"POST {self.path}?expect_seq={self.last_seq + 1} HTTP/1.1\r\nhost: {self.server.address[0]}\r\n"
        head += f"content-type: application/x-ndjson\r\ncontent-length: {len(body)}\r\n\r\n"
        with socket.create_connection(self.server.address) as torn:
            torn.sendall(head.encode() + body)
        self.append(lines)

    def append_half_a_body(self, lines):
        """A connection that is torn in the middle of a body brings nothing at all."""
        head = f"POST {self.path} HTTP/1.1\r\nhost: {self.server.address[0]}\r\n"
        head += "content-type: application/x-ndjson\r\ncontent-length: 100000\r\n\r\n"
        with socket.create_connection(self.server.address) as torn:
            torn.sendall(head.encode() + lines.encode())
        self.append(lines)

    def append_while_the_server_dies(self, lines):
        killer = threading.Thread(target=restart, args=(self.server,))
        killer.start()
        self.append(lines)
        killer.join()
        self.append_again(lines)

    def append_again(self, lines):
        """What was acknowledged before the server died is known to the next one."""
        self.last_seq -= lines.count("\n")
        self.append(lines)

    def renew(self):
        renewed = until_answered(lambda: self.client.post(self.path, content=b"", headers=LINES))
        assert expect(renewed, 200) == {"last_seq": self.last_seq}

    def refused(self):
        """Other events at numbers that are taken are refused, with the number to go on from."""
        other = self.client.post(self.path, params={"expect_seq": 1}, content=line("token", text="other"), headers=LINES)
        error = expect(other, 409)["error"]
        assert (error["code"], error["last_seq"]) == ("seq_conflict", self.last_seq), error


def restart(server):
    server.kill()
    time.sleep(0.1)
    server.start()


class Reader(threading.Thread):
    """Reads a run to its end, in pieces, and keeps each event. What went wrong is raised by `events_read`."""

    def __init__(self, server, session, run):
        super().__init__(daemon=True)
        self.path = f"/v1/sessions/{session}/runs/{run}/events"
        self.client = httpx.Client(base_url=server.url, timeout=5, trust_env=False)
        self.events, self.state, self.connections, self.failed = [], None, 0, None
        self.start()

    def run(self):
        try:
            while self.state is None:
                self.connections += 1
                try:
                    self.read()
                except LOST:
                    time.sleep(0.02)
        except BaseException as failed:
            self.failed = failed

    def take(self, event):
        assert event["seq"] == len(self.events) + 1, f"event {event['seq']} after {len(self.events)} events"
        self.events.append(event)

    def events_read(self):
        self.join(DEADLINE_SECONDS)
        if self.failed:
            raise self.failed
        assert not self.is_alive(), f"{type(self).__name__} has {len(self.events)} events and waits for more"
        return self.events


class StreamReader(Reader):
    """Server-sent events. Leaves its connection after every few events, in the middle of one, and resumes."""

    CUT_AFTER = 7

    def __init__(self, *of):
        self.last_id = None
        super().__init__(*of)

    def read(self):
        headers = {"accept": "text/event-stream"} | ({"last-event-id": self.last_id} if self.last_id else {})
        with self.client.stream("GET", self.path, headers=headers) as response:
            assert response.status_code in (200, 503), response.read()
            if response.status_code == 503:
                return time.sleep(0.02)
            assert response.headers["content-type"].startswith("text/event-stream"), response.headers
            # Small pieces end anywhere, also within a character.
            for nth, message in enumerate(messages_of(response.iter_raw(chunk_size=11)), 1):
                self.hear(message)
                if self.state is not None or nth % self.CUT_AFTER == 0:
                    return

    def hear(self, message):
        data = json.loads(message["data"])
        if "id" in message:
            assert message["id"] == data["event_id"] and message["event"] == data["event"], message
            self.take(data)
            self.last_id = message["id"]
        elif message["event"] == "end":
            self.state = data["state"]
            assert data["last_seq"] == len(self.events), data
        else:
            assert message["event"] == "gap", message


class LineReader(Reader):
    """JSON lines by long poll: 200 with lines, 204 when nothing came in time and the run goes on, 200 without lines at the
    end."""

    def __init__(self, *of):
        self.timeouts = 0
        super().__init__(*of)

    def read(self):
        asked = {"wait": "true", "after": str(len(self.events))}
        response = self.client.get(self.path, params=asked)
        if response.status_code == 503:
            return time.sleep(0.02)
        state = response.headers["lastword-run-state"]
        if response.status_code == 204:
            assert state == "running" and not response.content, state
            self.timeouts += 1
            return
        assert response.status_code == 200, response.text
        lines = [json.loads(line) for line in response.content.split(b"\n") if line]
        for event in lines:
            self.take(event)
        if not lines:
            self.state = state


server = Server()
with httpx.Client(base_url=server.url, timeout=5, trust_env=False) as client:
    expect(client.post("/v1/sessions", json={"session_id": "plain", "title": "Plain HTTP"}), 201)
    turn = {"message": "Where to?", "run_id": "r1", "lease_seconds": LEASE_SECONDS}
    # The answer to the first request is not looked at: the same request begins nothing twice.
    for _ in range(2):
        assert expect(client.post("/v1/sessions/plain/runs", json=turn), 202) == {"run_id": "r1"}
    expect(client.post("/v1/sessions/plain/runs", json=turn | {"message": "Other"}), 409)

    producer = Producer(server, "plain", "r1")
    readers = [StreamReader(server, "plain", "r1"), LineReader(server, "plain", "r1")]
    ways = [
        producer.append,
        producer.append_twice,
        producer.append_on_a_torn_connection,
        producer.append_half_a_body,
    ]
    for nth in range(0, EVENTS, 2):
        lines = line("token", text=word(nth)) + line("token", text=word(nth + 1))
        dies = nth in (20, 44)
        way = producer.append_while_the_server_dies if dies else ways[nth // 2 % len(ways)]
        way(lines)
        if nth == 32:
            producer.renew()
            producer.refused()
            # Longer than a long poll.
            time.sleep(3 * LONG_POLL_MS / 1000)
    producer.append_twice(line("done") + line("stream_end"))
    sealed = client.post(producer.path, content=line("token", text="late"), headers=LINES)
    assert expect(sealed, 409)["error"]["code"] == "sealed"

    streamed, polled = (reader.events_read() for reader in readers)
    for reader, events in zip(readers, (streamed, polled)):
        assert reader.state == "completed", reader.state
        texts = [event["payload"]["text"] for event in events if event["event"] == "token"]
        assert texts == [word(nth) for nth in range(EVENTS)], texts
        assert [event["event"] for event in events[-2:]] == ["done", "stream_end"], events[-2:]
    assert streamed == polled, "the two forms say different things"
    assert readers[0].connections > EVENTS // StreamReader.CUT_AFTER, readers[0].connections
    assert readers[1].timeouts > 0, "no long poll has waited to its end"

    # The server dies once more: the transcript is what was acknowledged.
    restart(server)
    session = expect(until_answered(lambda: client.get("/v1/sessions/plain")), 200)
    question, answer = session["messages"]
    assert question["content"] == "Where to?" and question["_run"]["state"] == "completed", question
    assert answer["content"] == "".join(word(nth) for nth in range(EVENTS)).strip(), answer
    assert not [key for row in session["messages"] for key in row if key.startswith("_recovered")], session
    listed = expect(client.get("/v1/sessions"), 200)["sessions"]
    assert [(item["session_id"], item["state"]) for item in listed] == [("plain", "idle")], listed
server.kill()
print("whole")
