"""A program that uses the client which openapi-python-client makes of the description, and nothing else but its models and
its httpx client. It is checked by `mypy --strict` beside the generated package, and run: `client.py URL TOKEN`."""

import json
import sys
from io import BytesIO

from lastword_client import AuthenticatedClient
from lastword_client.api.attachments import read_attachment, store_attachment
from lastword_client.api.chat import chat_messages
from lastword_client.api.operations import check
from lastword_client.api.runs import append_events, begin_run, stop_run
from lastword_client.api.sessions import create_session, list_sessions, read_session
from lastword_client.api.streams import read_events
from lastword_client.models import (
    AppendEventsDurability,
    DoneLine,
    DynamicToolUiPart,
    EndNotice,
    ErrorBody,
    EventsAppended,
    ListedSession,
    NewDone,
    NewRun,
    NewSession,
    NewToken,
    NewTool,
    NewToolComplete,
    OtherNewEvent,
    RunEndState,
    SessionActivity,
    TokenLine,
    TokenPayload,
    ToolCompletePayload,
    ToolLine,
    ToolPayload,
)
from lastword_client.types import File, Unset

url, token = sys.argv[1], sys.argv[2]
client = AuthenticatedClient(base_url=url, token=token, httpx_args={"trust_env": False})

created = create_session.sync(client=client, body=NewSession(title="A client", session_id="python"))
assert not isinstance(created, ErrorBody) and created is not None, created
assert created.title == "A client" and created.message_count == 0
sid = created.session_id

begun = begin_run.sync(sid, client=client, body=NewRun(message="Where to?", run_id="r1"))
assert begun is not None and not isinstance(begun, ErrorBody) and begun.run_id == "r1", begun

events: list[NewToken | NewTool | NewToolComplete | OtherNewEvent | NewDone] = [
    NewToken(event="token", payload=TokenPayload(text="To the sea.")),
    NewTool(event="tool", payload=ToolPayload(tool_call_id="c1", name="search", args={"q": "sea"})),
    NewToolComplete(event="tool_complete", payload=ToolCompletePayload(tool_call_id="c1", name="search", result=["a"])),
    OtherNewEvent(event="of my own", payload=[1]),
    NewDone(event="done"),
]
lines = "".join(json.dumps(event.to_dict()) + "\n" for event in events)
for _ in range(2):
    # The second one is a repeat, which is taken once.
    body = File(payload=BytesIO(lines.encode()))
    durable = AppendEventsDurability.DURABLE
    appended = append_events.sync(sid, "r1", client=client, body=body, expect_seq=1, durability=durable)
    assert isinstance(appended, EventsAppended) and appended.last_seq == 5, appended

session = read_session.sync(sid, client=client)
assert session is not None and not isinstance(session, ErrorBody), session
assert session.messages and session.tool_calls, session
question, answer = session.messages
assert (question.role, answer.role, answer.content) == ("user", "assistant", "To the sea."), session
assert not isinstance(question.field_run, Unset) and question.field_run.state == RunEndState.COMPLETED, question
assert session.tool_calls[0].field_call_id == "c1", session.tool_calls

listed = list_sessions.sync(client=client, limit=10)
assert listed is not None and not isinstance(listed, ErrorBody), listed
mine = [item for item in listed.sessions if isinstance(item, ListedSession) and item.session_id == sid]
assert [item.state for item in mine] == [SessionActivity.IDLE], listed

# Lines that are there, each with the type that its name gives it.
read = read_events.sync_detailed(sid, "r1", client=client)
known: dict[str, type[TokenLine] | type[ToolLine] | type[DoneLine]]
known = {"token": TokenLine, "tool": ToolLine, "done": DoneLine}
objects = [json.loads(line) for line in read.content.splitlines()]
typed = [known[line["event"]].from_dict(line) for line in objects if line["event"] in known]
first, second, last = typed
assert isinstance(first, TokenLine) and first.payload.text == "To the sea." and first.seq == 1, first
assert isinstance(second, ToolLine) and second.payload.tool_call_id == "c1", second
assert isinstance(last, DoneLine) and last.terminal, last

# The same as server-sent events, with the notice that ends them.
path = f"/v1/sessions/{sid}/runs/r1/events"
with client.get_httpx_client().stream("GET", path, headers={"accept": "text/event-stream"}) as stream:
    fields = [line.partition(": ") for line in stream.iter_lines()]
data = [value for name, _, value in fields if name == "data"]
end = EndNotice.from_dict(json.loads(data[-1]))
assert (end.run_id, end.last_seq, end.state.value) == ("r1", 5, "completed"), end

history = chat_messages.sync(sid, client=client)
assert isinstance(history, list), history
calls = [part for message in history for part in message.parts if isinstance(part, DynamicToolUiPart)]
assert [(call.tool_name, call.output) for call in calls] == [("search", ["a"])], history

stored = store_attachment.sync(sid, client=client, body=File(payload=BytesIO(b"bytes")), filename="a.bin")
assert stored is not None and not isinstance(stored, ErrorBody) and stored.bytes_ == 5, stored
fetched = read_attachment.sync_detailed(sid, stored.attachment, client=client)
assert fetched.content == b"bytes", fetched

again = begin_run.sync(sid, client=client, body=NewRun(message="And then?", lease_seconds=60))
assert again is not None and not isinstance(again, ErrorBody), again
stopped = stop_run.sync(sid, again.run_id, client=client)
assert stopped is not None and not isinstance(stopped, ErrorBody) and stopped.stopped, stopped

missing = read_session.sync_detailed("nowhere", client=client)
assert missing.status_code == 404 and isinstance(missing.parsed, ErrorBody), missing
assert missing.parsed.error.code == "not_found", missing

report = check.sync(client=client)
assert report is not None and not isinstance(report, ErrorBody) and report.summary.damage == 0, report
print("whole")
