//! A chat as the AI SDK's client sees it: messages with ids, streams of chunks; and a runner that does what it is told.

use std::time::Duration;

use lastword::Event;
use lastword::run::{DemoRunner, Failure, Finish, Outlet, Producing, Prompt, Runner, Runners};
use serde_json::{Value, json};

use crate::house::House;
use crate::wire::{Answer, ask};

/// Answers with the message and the number of its attachments. Fails at "fail", and waits to be stopped at "hang" and, after
/// a word, at "half".
#[derive(Debug)]
struct Obedient;

impl Runner for Obedient {
    fn produce(&self, prompt: Prompt, outlet: Outlet) -> Producing {
        Box::pin(async move {
            let files = serde_json::from_str::<Vec<Value>>(&prompt.attachments).unwrap().len();
            match prompt.message.as_str() {
                "fail" => return Err(Failure::new("no_luck", "It was told to fail.")),
                "hang" => outlet.stopped().await,
                "half" => {
                    outlet.say(Event::token("half ")).await?;
                    outlet.stopped().await;
                }
                message => outlet.say(Event::token(&format!("{message}! {files} files"))).await?,
            }
            Ok(Finish::done())
        })
    }
}

/// A server whose usual runner is [`Obedient`].
pub(crate) fn chat_house() -> House {
    let runners = Runners::default().with("obedient", Obedient).with_default("obedient");
    House::of(lastword::Options::default(), runners, |_| {})
}

/// A server with a demo runner of this pace.
pub(crate) fn demo_house(pace: Duration) -> House {
    let runners = Runners::default().with_demo(DemoRunner { pace });
    House::of(lastword::Options::default(), runners, |_| {})
}

/// A message of the user.
pub(crate) fn user(id: &str, text: &str) -> Value {
    json!({ "id": id, "role": "user", "parts": [{ "type": "text", "text": text }] })
}

/// What `sendMessage` sends.
pub(crate) fn submit(house: &House, chat: &str, message: Value) -> Answer {
    house.post("/api/chat", json!({ "id": chat, "messages": [message], "trigger": "submit-message" }))
}

/// What `sendMessage` sends that edits a message.
pub(crate) fn edit(house: &House, chat: &str, message: Value) -> Answer {
    let id = message["id"].clone();
    let body = json!({ "id": chat, "messages": [message], "trigger": "submit-message", "messageId": id });
    house.post("/api/chat", body)
}

/// What `regenerate` sends.
pub(crate) fn regenerate(house: &House, chat: &str, message_id: Option<&str>, messages: &[Value]) -> Answer {
    let body = json!({ "id": chat, "messages": messages, "trigger": "regenerate-message", "messageId": message_id });
    house.post("/api/chat", body)
}

/// The chunks of an answer, without the last word.
#[track_caller]
pub(crate) fn chunks(answer: &Answer) -> Vec<Value> {
    let mut data: Vec<&str> = answer.text().lines().filter_map(|line| line.strip_prefix("data: ")).collect();
    assert_eq!(data.pop(), Some("[DONE]"));
    data.into_iter().map(|chunk| serde_json::from_str(chunk).unwrap()).collect()
}

pub(crate) fn text_of(chunks: &[Value]) -> String {
    let deltas = chunks.iter().filter(|chunk| chunk["type"] == "text-delta");
    deltas.map(|chunk| chunk["delta"].as_str().unwrap()).collect()
}

/// The run that an answer streams.
#[track_caller]
pub(crate) fn run_of(answer: &Answer) -> String {
    let run = answer.header("lastword-run").expect("a stream names its run");
    assert_eq!(chunks(answer)[0]["messageId"], run);
    run.to_owned()
}

/// The transcript's rows as `role: content`.
pub(crate) fn rows(house: &House, chat: &str) -> Vec<String> {
    let session = house.get(&format!("/v1/sessions/{chat}")).expect(200).json();
    let rows = session["messages"].as_array().unwrap().iter();
    rows.map(|row| format!("{}: {}", row["role"].as_str().unwrap(), row["content"].as_str().unwrap())).collect()
}

/// The messages that the history gives.
#[track_caller]
pub(crate) fn history(house: &House, chat: &str) -> Vec<Value> {
    let answer = house.get(&format!("/api/chat/{chat}/messages")).expect(200);
    answer.json().as_array().unwrap().clone()
}

/// The branches of a chat.
#[track_caller]
pub(crate) fn branches(house: &House, chat: &str) -> Vec<Value> {
    let answer = house.get(&format!("/v1/sessions/{chat}/branches")).expect(200);
    answer.json()["branches"].as_array().unwrap().clone()
}

/// Stops a run.
pub(crate) fn stop(house: &House, chat: &str, run: &str) {
    house.send(&ask("POST", &format!("/v1/sessions/{chat}/runs/{run}/stop"))).expect(200);
}

/// Waits until a chat is being answered, and gives the run.
pub(crate) fn live_run(house: &House, chat: &str) -> String {
    for _ in 0..500 {
        let metadata = house.get(&format!("/v1/sessions/{chat}?view=metadata"));
        if let Some(run) = (metadata.status == 200)
            .then(|| metadata.json())
            .and_then(|it| it["active_stream_id"].as_str().map(str::to_owned))
        {
            return run;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("nothing is being answered");
}
