// A program that uses the client which openapi-typescript and openapi-fetch make of the description. It is compiled with
// `--strict` beside the generated `api.d.ts`, and run: `node client.js URL TOKEN`.

import createClient from "openapi-fetch";
import type { components, paths } from "./api";

declare const process: { argv: string[] };
type Schemas = components["schemas"];
const [url, token] = process.argv.slice(2) as [string, string];
const client = createClient<paths>({ baseUrl: url, headers: { authorization: `Bearer ${token}` } });

function expect(condition: unknown, why: string): asserts condition {
  if (!condition) throw new Error(why);
}

/** What an answer brings; fails with the server's words if it refuses. */
function taken<T>(answer: { data?: T; error?: Schemas["ErrorBody"] | string }): T {
  if (answer.data !== undefined) return answer.data;
  throw new Error(typeof answer.error === "string" ? answer.error : answer.error?.error.code);
}

const lines = (events: Schemas["NewEvent"][]) => events.map((event) => `${JSON.stringify(event)}\n`).join("");

/** The messages of a run's stream, each with the type that its name gives it. */
async function* messages(body: ReadableStream<Uint8Array>): AsyncGenerator<Schemas["RunStreamMessage"]> {
  let text = "";
  const decoder = new TextDecoder();
  for await (const chunk of body as unknown as AsyncIterable<Uint8Array>) {
    text += decoder.decode(chunk, { stream: true });
    for (let end = text.indexOf("\n\n"); end >= 0; end = text.indexOf("\n\n")) {
      const fields = text.slice(0, end).split("\n").filter((line) => !line.startsWith(":"));
      text = text.slice(end + 2);
      const message = Object.fromEntries(fields.map((line) => line.split(/: ?(.*)/s, 2)));
      if (message.data !== undefined) yield message as Schemas["RunStreamMessage"];
    }
  }
}

const created = taken(await client.POST("/v1/sessions", { body: { title: "A client", session_id: "typescript" } }));
const sid: string = created.session_id;
expect(created.title === "A client", "the title is not there");

const message: Schemas["NewRun"] = { message: "Where to?", run_id: "r1", attachments: [] };
const begun = taken(await client.POST("/v1/sessions/{sid}/runs", { params: { path: { sid } }, body: message }));
const run = { sid, rid: begun.run_id };

const appended = taken(
  await client.POST("/v1/sessions/{sid}/runs/{rid}/events", {
    params: { path: run, query: { expect_seq: 1, durability: "durable" } },
    headers: { "content-type": "application/x-ndjson" },
    bodySerializer: (body) => body,
    body: lines([
      { event: "token", payload: { text: "To the sea." } },
      { event: "tool", payload: { tool_call_id: "c1", name: "search", args: { q: "sea" } } },
      { event: "tool_complete", payload: { tool_call_id: "c1", name: "search", result: ["a"] } },
      { event: "of my own", payload: [1] },
      { event: "done" },
    ]),
  }),
);
expect(appended.last_seq === 5, `the last event is ${appended.last_seq}`);

const session = taken(await client.GET("/v1/sessions/{sid}", { params: { path: { sid } } }));
const rows: Schemas["Row"][] = session.messages ?? [];
expect(rows.map((row) => row.role).join() === "user,assistant", "the rows are not there");
expect(rows[1]?.content === "To the sea.", "the answer is not there");
expect(rows[0]?._run?.state === "completed", "the run is not noted");
expect(session.tool_calls?.[0]?._call_id === "c1", "the call is not there");

const listed = taken(await client.GET("/v1/sessions", { params: { query: { limit: 10 } } }));
for (const item of listed.sessions) {
  const words: string = "error" in item ? (item as Schemas["UnreadableSession"]).error.message : `${item.state}`;
  expect(words === "idle", words);
}

const stream = await client.GET("/v1/sessions/{sid}/runs/{rid}/events", {
  params: { path: run },
  headers: { accept: "text/event-stream" },
  parseAs: "stream",
});
expect(stream.response.ok && stream.data, "the run cannot be followed");
let words = "";
let calls = 0;
let end: Schemas["EndNotice"] | undefined;
for await (const one of messages(stream.data as ReadableStream<Uint8Array>)) {
  if (!("id" in one)) {
    if (one.event === "end") end = JSON.parse(one.data) as Schemas["EndNotice"];
    continue;
  }
  const line = JSON.parse(one.data) as Schemas["KnownEventLine"];
  switch (line.event) {
    case "token":
      words += line.payload.text;
      break;
    case "tool":
      calls += line.payload.tool_call_id === "c1" ? 1 : 0;
      break;
    case "done":
      expect(line.terminal, "done does not end the run");
  }
}
expect(words === "To the sea." && calls === 1, `${words}, ${calls} calls`);
expect(end?.state === "completed" && end.last_seq === 5, "the end was not told");

const history = taken(await client.GET("/api/chat/{sid}/messages", { params: { path: { sid } } }));
const parts = history.flatMap((one) => one.parts) as Schemas["KnownUiPart"][];
const tool = parts.find((part) => part.type === "dynamic-tool");
expect(tool?.toolName === "search" && tool.state === "output-available", "the call is not in the history");

const second = taken(await client.POST("/v1/sessions/{sid}/runs", { params: { path: { sid } }, body: { message: "And?" } }));
const stopped = taken(await client.POST("/v1/sessions/{sid}/runs/{rid}/stop", { params: { path: { sid, rid: second.run_id } } }));
expect(stopped.stopped, "the run was not stopped");

const missing = await client.GET("/v1/sessions/{sid}", { params: { path: { sid: "nowhere" } } });
expect(missing.response.status === 404 && missing.error?.error.code === "not_found", "a session is there that is not");

const report = taken(await client.GET("/v1/check"));
expect(report.summary.damage === 0, JSON.stringify(report.findings));
console.log("whole");
