"""Real answers of a server, compared with its description: `reality.py URL DATA`. DATA is the server's data directory, which
holds sessions of the reference program. Prints how many answers of each kind were compared."""

import base64
import json
import sys
import time
from pathlib import Path

import httpx

from described import Described
from sse import messages_of

url, data = sys.argv[1], Path(sys.argv[2])
client = httpx.Client(base_url=url, timeout=30, trust_env=False)
api = Described(json.loads(client.get("/openapi.json").content))


def ask(operation, method, path, expected, **rest):
    response = client.request(method, path, **rest)
    body = api.answer(operation, response)
    assert response.status_code == expected, f"{method} {path}: {response.status_code} {response.text[:500]}"
    return body


def follow(operation, method, path, until, **rest):
    """The messages of a stream up to one, each with what its data holds."""
    headers = {"accept": "text/event-stream", **rest.pop("headers", {})}
    with client.stream(method, path, headers=headers, **rest) as stream:
        assert stream.status_code == 200, stream.read()
        seen = []
        for message in messages_of(stream.iter_bytes()):
            if "data" not in message:
                continue
            seen.append((message, api.message(operation, message)))
            if until(message):
                break
        return seen


def append(session, run, *events):
    lines = "".join(json.dumps(event) + "\n" for event in events)
    headers = {"content-type": "application/x-ndjson"}
    for event in events:
        api.check("NewEvent", event)
    return ask("append_events", "POST", f"/v1/sessions/{session}/runs/{run}/events", 200, content=lines, headers=headers)


def event(name, /, **payload):
    return {"event": name, "payload": payload}


def create(session):
    ask("create_session", "POST", "/v1/sessions", 201, json={"session_id": session, "title": "Plan a trip"})


def begin(session, run, **rest):
    body = {"message": "Where to?", "run_id": run, **rest}
    ask("begin_run", "POST", f"/v1/sessions/{session}/runs", 202, json=body)


PICTURE = "data:image/png;base64," + base64.b64encode(b"\x89PNG").decode()

KNOWN = [
    event("reasoning", text="The sea."),
    event("token", text="To the "),
    event("interim_assistant", text="Let me look.", already_streamed=False),
    event("tool", tool_call_id="c1", name="search", args={"q": "sea", "n": 3}, preview="sea"),
    event("tool_delta", tool_call_id="c2", name="read", arguments_delta='{"p":'),
    event("tool", tool_call_id="c2", name="read", args="a text", snippet=None),
    event("tool_complete", tool_call_id="c1", name="search", result=["a", None], duration=0.5, preview="1 place"),
    event("tool_complete", tool_call_id="c2", name="read", result="x" * 70_000, is_error=True),
    event("usage", input_tokens=3, output_tokens=None, model="m"),
    event("source", id="s", url="https://example.org/", title="Sea"),
    event("source", id="d", media_type="text/plain", title="Doc"),
    event("file", media_type="image/png", url="https://example.org/a.png"),
    event("data", name="chart", id="1", data=[1, {"a": None}]),
    event("metadata", place={"name": "sea"}),
    event("user_message", message_id="m2", message="And the hills?"),
    event("agent_session", runner="agent", agent_session_id="a-1"),
    event("attempt", attempt=1, of=3, runner="agent"),
    event("attempt_end", attempt=1, type="rate", message="m", close_reason="x", retryable=True, retry_in_seconds=0.5),
    event("token", text="sea\r\u2028side."),
]
ODD = [
    event("token", text=7),
    {"event": "token", "payload": None},
    {"event": "tool", "payload": [1]},
    {"event": "tool_complete", "payload": {"id": 7, "output": {"deep": [[]]}, "duration": {"not": "a number"}}},
    {"event": "reasoning", "payload": {"thinking": "so"}},
    {"event": "a name of its own", "payload": 1.5e300},
]


def own_sessions():
    """Sessions as this server makes them."""
    create("ordinary")
    upload = client.post("/v1/sessions/ordinary/attachments?filename=a.png", content=b"x", headers={"content-type": "image/png"})
    uploaded = api.answer("store_attachment", upload)
    stored = upload.headers["location"]
    assert ask("read_attachment", "GET", stored, 200) == b"x"
    known = {"if-none-match": f'"{uploaded["attachment"]}"'}
    ask("read_attachment", "GET", stored, 304, headers=known)
    begin("ordinary", "r1", attachments=[uploaded, {"type": "file", "mediaType": "image/png", "url": PICTURE}, 7, None])
    append("ordinary", "r1", *KNOWN)
    append("ordinary", "r1", event("done", usage={"input_tokens": 1, "output_tokens": 2}), {"event": "stream_end"})
    lines = ask("read_events", "GET", "/v1/sessions/ordinary/runs/r1/events", 200)
    for line in lines:
        # Lines of this program are of the exact form, and not of the open one.
        api.check("KnownEventLine", line)
    for nth, end in enumerate([event("cancel"), event("apperror", type="rate", message="No."), event("error", type="x", message="y")]):
        begin("ordinary", f"e{nth}")
        append("ordinary", f"e{nth}", event("token", text="and"), end)
    create("odd")
    begin("odd", "r1")
    append("odd", "r1", *ODD)
    append("odd", "r1", {"event": "done"})
    create("stopped")
    begin("stopped", "r1", lease_seconds=60)
    append("stopped", "r1", event("token", text="half"))
    ask("stop_run", "POST", "/v1/sessions/stopped/runs/r1/stop", 200)
    begin("stopped", "r2")
    path = "/v1/sessions/stopped"
    ask("change_session", "PATCH", path, 200, json={"title": "Stopped", "pinned": True}, headers={"if-match": "*"})
    create("live")
    begin("live", "r1")
    append("live", "r1", *KNOWN[:4])
    chats()
    credentials()
    refusals()


def chats():
    """A chat with a runner of the server, and an answer given again."""
    def chat(**rest):
        return follow("chat", "POST", "/api/chat", lambda message: message["data"] == "[DONE]", json={"id": "chat", **rest})

    words = {"id": "m1", "role": "user", "parts": [{"type": "text", "text": "Where to?"}], "metadata": {"a": 1}}
    chunks = [data for _, data in chat(messages=[words], runner="demo")]
    assert chunks[0]["type"] == "start" and chunks[-1] is None, chunks
    for chunk in chunks[:-1]:
        api.check("UiMessageChunk", chunk)
    chat(messages=[words], trigger="regenerate-message", messageId="m1", runner="demo")
    for _ in range(100):
        branches = ask("list_branches", "GET", "/v1/sessions/chat/branches", 200)["branches"]
        if branches:
            break
        time.sleep(0.05)
    assert branches[0]["reason"] == "regenerate", branches
    restore = f"/v1/sessions/chat/branches/{branches[0]['branch_id']}/restore"
    ask("restore_branch", "POST", restore, 200, headers={"if-match": "*"})


def credentials():
    """A server without tokens gives tickets and takes logins, so that one client works everywhere."""
    path = "/v1/sessions/ordinary"
    ticket = ask("issue_ticket", "POST", "/v1/tickets", 201, json={"path": path})["ticket"]
    ask("read_session", "GET", f"{path}?ticket={ticket}", 200)
    for operation, form in [("login", {"token": "x"}), ("logout", None)]:
        ask(operation, "POST", f"/{operation}", 204, data=form, headers={"accept": "application/json"})
        ask(operation, "POST", f"/{operation}", 303, data=form)


def refusals():
    ask("read_session", "GET", "/v1/sessions/nowhere", 404)
    ask("create_session", "POST", "/v1/sessions", 409, json={"session_id": "ordinary"})
    ask("change_session", "PATCH", "/v1/sessions/ordinary", 428, json={})
    ask("append_events", "POST", "/v1/sessions/ordinary/runs/r1/events", 409, content='{"event":"done"}\n', headers={"content-type": "application/x-ndjson"})
    ask("read_events", "GET", "/v1/sessions/ordinary/runs/r1/events?after=x", 400)
    ask("list_runs", "GET", "/v1/sessions/ordinary/runs?limit=0", 400)
    ask("list_runs", "GET", "/v1/sessions/ordinary/runs?before=nowhere", 404)
    ask("read_run", "GET", "/v1/sessions/ordinary/runs/nowhere", 404)
    ask("issue_ticket", "POST", "/v1/tickets", 400, json={"path": "nowhere"})
    ask("resume_chat", "GET", "/api/chat/ordinary/stream?run=nowhere", 404)
    ask("chat", "POST", "/api/chat", 400, json={"id": "chat"}, headers={"accept": "application/json"})


def journals(session):
    return sorted(path.stem for path in (data / "_run_journal" / session).glob("*.jsonl"))


def everything_of(session):
    """Everything that can be read of a session, of whatever program. Whether it can be read at all."""
    path = f"/v1/sessions/{session}"
    response = client.get(path)
    if response.status_code != 200:
        api.answer("read_session", response)
        assert response.json()["error"]["code"] in ("corrupt_json", "wrong_shape"), response.text
        return False
    if not isinstance(response.json()["messages"], (list, type(None))):
        # A file with another value in the place of the transcript is served as it lies: the description says so in words.
        odd.append(session)
        return False
    whole = api.answer("read_session", response)
    ask("read_session", "GET", f"{path}?view=metadata", 200)
    page = ask("read_session", "GET", f"{path}?limit=2", 200)
    api.check("RowPage", page["page"])
    messages = ask("chat_messages", "GET", f"/api/chat/{session}/messages", 200)
    for part in (part for message in messages for part in message["parts"]):
        api.check("KnownUiPart" if not part["type"].startswith("data-") else "DataUiPart", part)
    ask("list_branches", "GET", f"{path}/branches", 200)
    runs = ask("list_runs", "GET", f"{path}/runs", 200)["runs"]
    assert set(journals(session)) <= {run["run_id"] for run in runs}, (session, runs)
    for run in runs:
        assert ask("read_run", "GET", f"{path}/runs/{run['run_id']}", 200) == run
    for run in journals(session):
        lines = ask("read_events", "GET", f"{path}/runs/{run}/events", 200)
        is_over = any(line.get("terminal") is True for line in lines)
        if is_over:
            events = follow("read_events", "GET", f"{path}/runs/{run}/events", lambda message: message.get("event") == "end" and "id" not in message)
            assert len(events) > len(lines), (session, run)
            follow("resume_chat", "GET", f"/api/chat/{session}/stream?run={run}", lambda message: message["data"] == "[DONE]")
    assert whole["session_id"] == session
    return True


def listed():
    sessions, cursor = [], ""
    while cursor is not None:
        page = ask("list_sessions", "GET", f"/v1/sessions?limit=20{cursor and '&cursor=' + cursor}", 200)
        sessions += page["sessions"]
        cursor = page["next_cursor"]
    return [session["session_id"] for session in sessions]


def streams():
    """The streams that do not end, with each of their notices."""
    is_snapshot = lambda message: message.get("event") == "snapshot"
    assert follow("read_events", "GET", "/v1/sessions/ordinary/runs/r1/events?after=r9:1", is_snapshot)[-1][1]["reason"] == "foreign"
    follow("read_events", "GET", "/v1/sessions/ordinary/runs/r1/events?after=99999", is_snapshot)
    follow("follow_session", "GET", "/v1/sessions/ordinary/events?after=odd", is_snapshot)
    is_end = lambda message: message.get("event") == "end"
    follow("follow_session", "GET", "/v1/sessions/ordinary/events", is_end)

    def after_first(message):
        if is_snapshot(message):
            create("gone")
            ask("delete_session", "DELETE", "/v1/sessions/gone", 204)
        return message.get("event") == "deleted"

    kinds = [message["event"] for message, _ in follow("follow_list", "GET", "/v1/events", after_first)]
    assert kinds == ["snapshot", "changed", "deleted"], kinds
    create("short")
    begin("short", "r1")

    def gone(message):
        if message.get("event") == "token":
            client.delete("/v1/sessions/short")
        return is_end(message) and json.loads(message["data"])["state"] == "deleted"

    append("short", "r1", event("token", text="a"), event("cancel"))
    follow("follow_session", "GET", "/v1/sessions/short/events", gone)


odd = []
own_sessions()
read = [session for session in listed() if everything_of(session)]
streams()
for operation, path in [("health", "/healthz"), ("readiness", "/readyz"), ("metrics", "/metrics"), ("check", "/v1/check"), ("list_runners", "/v1/runners")]:
    ask(operation, "GET", path, 200)
left = set(api.operations) - {of.split()[0] for of in api.checked}
print(json.dumps({"sessions": len(read), "odd": len(odd), "checked": api.checked, "left": sorted(left)}))
